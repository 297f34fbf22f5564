//! An `https` destination that cannot prove to be the receiver is told nothing, and its events wait.

use std::sync::{Arc, Mutex};

use rcgen::{CertificateParams, CertifiedIssuer, KeyPair};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    sync::watch,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{ServerConfig, pki_types::PrivateKeyDer},
};

use crate::{
    both,
    support::{
        database::Database,
        rig::{Job, Rig, page_of},
    },
};

both!(
    a_certificate_that_nobody_trusts_parks_its_destination_and_nothing_is_told_or_lost,
    what_speaks_no_tls_parks_its_destination_and_nothing_is_told_or_lost,
    a_certificate_counts_for_its_own_name_alone,
);

/// Who signs certificates.
type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// What listens where an `https` destination should, and takes everything that it is told.
#[derive(Clone)]
struct Stranger {
    url: String,
    acceptor: Option<TlsAcceptor>,
    told: Arc<Mutex<Vec<u8>>>,
    /// Connections that came to their end.
    ended: watch::Sender<usize>,
}

impl Stranger {
    /// Shows a certificate for `name`, or speaks no TLS.
    async fn new(certificate: Option<(&Authority, &str)>) -> Self {
        let acceptor = certificate.map(|(authority, name)| {
            let key = KeyPair::generate().unwrap();
            let params = CertificateParams::new([name.to_owned()]).unwrap();
            let chain = vec![params.signed_by(&key, authority).unwrap().into()];
            let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
            let config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key);
            TlsAcceptor::from(Arc::new(config.unwrap()))
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let stranger = Self { url, acceptor, told: Arc::default(), ended: watch::Sender::new(0) };
        let server = stranger.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let server = server.clone();
                tokio::spawn(async move {
                    match &server.acceptor {
                        Some(acceptor) => {
                            if let Ok(stream) = acceptor.accept(stream).await {
                                server.listen(stream, "200 OK").await;
                            }
                        }
                        None => server.listen(stream, "400 Bad Request").await,
                    }
                    server.ended.send_modify(|ended| *ended += 1);
                });
            }
        });
        stranger
    }

    /// Answers whatever it is told.
    async fn listen(&self, mut stream: impl AsyncReadExt + AsyncWriteExt + Unpin, status: &str) {
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        let mut some = [0; 4_096];
        while let Ok(1..) = stream.read(&mut some).await.inspect(|length| {
            self.told.lock().unwrap().extend_from_slice(&some[..*length]);
        }) {
            if stream.write_all(answer.as_bytes()).await.is_err() {
                break;
            }
        }
    }

    /// All that it was told once a connection has come to its end.
    async fn was_told(&self) -> String {
        self.ended.subscribe().wait_for(|ended| *ended > 0).await.unwrap();
        String::from_utf8_lossy(&self.told.lock().unwrap()).into_owned()
    }
}

/// A rig with two rows, whose destination is the stranger.
async fn rig(database: Database, stranger: &Stranger) -> Rig {
    let rows = [(1, "2026-09-21T10:00:00Z"), (2, "2026-09-21T10:00:01Z")];
    let rig = Rig::new(database, Job::default(), move |asked| page_of(&rows, asked, 10)).await;
    rig.rewrite("concurrency: 8", "concurrency: 8, auth: {type: bearer, token: in-confidence}");
    rig.rewrite(&rig.receiver.url, &stranger.url);
    rig
}

/// What the store knows of the only destination, and how many events wait, are delivered, and are dead.
async fn known(rig: &Rig) -> (String, [i64; 3]) {
    let condition = rig.database.texts("SELECT condition FROM destination").await.remove(0);
    let mut counts = [0; 3];
    for (count, state) in counts.iter_mut().zip(["pending", "delivered", "dead"]) {
        *count = rig.database.number(&format!("(SELECT count(*) FROM event WHERE state = '{state}')")).await;
    }
    (condition, counts)
}

/// Everything waits, and comes to the receiver once the destination is one again.
async fn nothing_is_lost(rig: &Rig, stranger: &Stranger) {
    assert_eq!(known(rig).await, ("parked".to_owned(), [2, 0, 0]));
    assert_eq!(rig.database.number("(SELECT count(*) FROM event WHERE ambiguous)").await, 0);
    rig.rewrite(&stranger.url, &rig.receiver.url);
    assert_eq!(rig.sync().await.delivered, 2);
    assert_eq!(rig.sent_keys(), ["1", "2"]);
}

async fn a_certificate_that_nobody_trusts_parks_its_destination_and_nothing_is_told_or_lost(
    database: Database,
) {
    let stranger = Stranger::new(Some((&authority(), "127.0.0.1"))).await;
    let rig = rig(database, &stranger).await;
    rig.sync().await;
    assert_eq!(stranger.was_told().await, "");
    nothing_is_lost(&rig, &stranger).await;
}

async fn what_speaks_no_tls_parks_its_destination_and_nothing_is_told_or_lost(database: Database) {
    let stranger = Stranger::new(None).await;
    let rig = rig(database, &stranger).await;
    rig.sync().await;
    let told = stranger.was_told().await;
    assert!(told.starts_with('\u{16}'), "a handshake");
    assert!(!["evt_", "in-confidence", "/webhook/rows"].iter().any(|said| told.contains(said)), "{told}");
    nothing_is_lost(&rig, &stranger).await;
}

async fn a_certificate_counts_for_its_own_name_alone(database: Database) {
    let authority = authority();
    let other = Stranger::new(Some((&authority, "n8n.example.com"))).await;
    let rig = rig(database, &other).await;
    let trusted = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(trusted.path(), pem(authority.der())).unwrap();
    let variables = [("SSL_CERT_FILE", trusted.path().to_str().unwrap())];
    rig.command_with(&["sync", "rows"], &variables).await;
    assert_eq!(known(&rig).await, ("parked".to_owned(), [2, 0, 0]));
    assert_eq!(other.was_told().await, "");

    let right = Stranger::new(Some((&authority, "127.0.0.1"))).await;
    rig.rewrite(&other.url, &right.url);
    let (code, _, stderr) = rig.command_with(&["sync", "rows"], &variables).await;
    assert_eq!((code, known(&rig).await.1), (0, [0, 2, 0]), "{stderr}");
    assert!(right.was_told().await.contains("Bearer in-confidence"));
}

/// A certificate as the file of trusted ones holds it.
fn pem(certificate: &[u8]) -> String {
    use base64::{Engine, engine::general_purpose::STANDARD};
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", STANDARD.encode(certificate))
}
