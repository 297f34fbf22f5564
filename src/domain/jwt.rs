//! JSON Web Tokens (RFC 7519) signed with a passphrase or a private key, as n8n's `JWT Auth` verifies them: each
//! attempt shows a token of its own, which is good for a few minutes.
//!
//! A token is a function of its moment but for the salt that `PS…` and `ES…` signatures draw from the system.

use std::{fmt, time::Duration};

use jsonwebtoken::{EncodingKey, Header, encode};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{content::Hash, instant::Instant};

/// How long a token is good: as long as an attempt and two clocks that differ may need.
pub const LIFE: Duration = Duration::from_mins(5);

/// The claims that every token has by itself.
pub const OWN_CLAIMS: [&str; 2] = ["iat", "exp"];

/// How a token is signed (RFC 7518, section 3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub enum Algorithm {
    /// HMAC with SHA-256.
    #[default]
    HS256,
    /// HMAC with SHA-384.
    HS384,
    /// HMAC with SHA-512.
    HS512,
    /// RSA with SHA-256.
    RS256,
    /// RSA with SHA-384.
    RS384,
    /// RSA with SHA-512.
    RS512,
    /// RSA-PSS with SHA-256.
    PS256,
    /// RSA-PSS with SHA-384.
    PS384,
    /// RSA-PSS with SHA-512.
    PS512,
    /// ECDSA on P-256 with SHA-256.
    ES256,
    /// ECDSA on P-384 with SHA-384.
    ES384,
}

impl Algorithm {
    /// Those that sign with a private key.
    pub const OF_PRIVATE_KEYS: [Self; 8] = [
        Self::RS256,
        Self::RS384,
        Self::RS512,
        Self::PS256,
        Self::PS384,
        Self::PS512,
        Self::ES256,
        Self::ES384,
    ];

    /// Its name as a token's header spells it.
    pub fn name(self) -> String {
        format!("{self:?}")
    }

    /// What it signs with.
    pub const fn takes(self) -> &'static str {
        match self {
            Self::HS256 | Self::HS384 | Self::HS512 => "a passphrase",
            Self::RS256 | Self::RS384 | Self::RS512 | Self::PS256 | Self::PS384 | Self::PS512 => {
                "an RSA key of 2048 to 8192 bits"
            }
            Self::ES256 => "a key on the curve P-256",
            Self::ES384 => "a key on the curve P-384",
        }
    }

    /// Whether it signs with a private key and not with a passphrase.
    pub fn takes_private_key(self) -> bool {
        Self::OF_PRIVATE_KEYS.contains(&self)
    }

    const fn known(self) -> jsonwebtoken::Algorithm {
        use jsonwebtoken::Algorithm as Known;
        match self {
            Self::HS256 => Known::HS256,
            Self::HS384 => Known::HS384,
            Self::HS512 => Known::HS512,
            Self::RS256 => Known::RS256,
            Self::RS384 => Known::RS384,
            Self::RS512 => Known::RS512,
            Self::PS256 => Known::PS256,
            Self::PS384 => Known::PS384,
            Self::PS512 => Known::PS512,
            Self::ES256 => Known::ES256,
            Self::ES384 => Known::ES384,
        }
    }
}

/// Why a text is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// No block of PEM stands in it.
    #[error("is not a private key in PEM")]
    NotPem,
    /// It was written on one line.
    #[error("has `\\n` where its lines end")]
    Escaped,
    /// It is what the receiver needs.
    #[error("is a public key or a certificate")]
    Public,
    /// It can be read with a passphrase alone.
    #[error("is encrypted")]
    Encrypted,
    /// An elliptic key outside PKCS#8.
    #[error("is in the format SEC1")]
    Sec1,
    /// The algorithm takes another kind of key, or the key is damaged.
    #[error("cannot sign by `{}`", .0.name())]
    Unfit(Algorithm),
}

/// What tokens are signed with, known to fit its algorithm.
pub struct Key {
    algorithm: Algorithm,
    key: EncodingKey,
}

impl Key {
    /// A passphrase, for the algorithms of HMAC.
    pub fn from_passphrase(algorithm: Algorithm, passphrase: &str) -> Result<Self, KeyError> {
        Self::of(algorithm, EncodingKey::from_secret(passphrase.as_bytes()))
    }

    /// A private key in PEM: RSA in PKCS#8 or PKCS#1, elliptic curves in PKCS#8.
    pub fn from_pem(algorithm: Algorithm, pem: &str) -> Result<Self, KeyError> {
        let is = |what: &str| pem.contains(what);
        if !is("-----BEGIN ") {
            return Err(KeyError::NotPem);
        }
        if is("\\n") {
            return Err(KeyError::Escaped);
        }
        if is("ENCRYPTED") {
            return Err(KeyError::Encrypted);
        }
        if is("BEGIN EC PRIVATE KEY") {
            return Err(KeyError::Sec1);
        }
        if !is("PRIVATE KEY-----") {
            let public = is("PUBLIC KEY-----") || is("CERTIFICATE-----");
            return Err(if public { KeyError::Public } else { KeyError::NotPem });
        }
        match algorithm {
            Algorithm::ES256 | Algorithm::ES384 => {
                Self::of(algorithm, EncodingKey::from_ec_pem(pem.as_bytes()))
            }
            _ => Self::of(algorithm, EncodingKey::from_rsa_pem(pem.as_bytes())),
        }
    }

    /// The key, once it has signed something: what was read is not checked before.
    fn of(algorithm: Algorithm, key: jsonwebtoken::errors::Result<EncodingKey>) -> Result<Self, KeyError> {
        let key = Self { algorithm, key: key.map_err(|_| KeyError::Unfit(algorithm))? };
        match key.token(&Map::new(), Instant::from_seconds(0)) {
            Ok(_) => Ok(key),
            Err(_) => Err(KeyError::Unfit(algorithm)),
        }
    }

    /// A token with these claims, issued at `now`. `None` where the system has no salt to give.
    pub fn mint(&self, claims: &Map<String, Value>, now: Instant) -> Option<String> {
        self.token(claims, now).ok()
    }

    /// What tells this key and its use from every other one, as a hash.
    pub fn identity(&self) -> String {
        format!("{:?} {}", self.algorithm, Hash::of(self.key.as_bytes()).hex())
    }

    fn token(&self, claims: &Map<String, Value>, now: Instant) -> jsonwebtoken::errors::Result<String> {
        let mut claims = claims.clone();
        claims.insert("iat".to_owned(), now.seconds().into());
        claims.insert("exp".to_owned(), now.plus(LIFE).seconds().into());
        encode(&Header::new(self.algorithm.known()), &claims, &self.key)
    }
}

impl fmt::Debug for Key {
    /// Names the algorithm alone.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Key").field(&self.algorithm).finish()
    }
}

#[cfg(test)]
mod tests {
    use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
    use serde_json::json;

    use super::*;

    const RSA: &str = include_str!("../../tests/fixtures/keys/rsa.pem");
    const RSA_PKCS1: &str = include_str!("../../tests/fixtures/keys/rsa-pkcs1.pem");
    const RSA_1024: &str = include_str!("../../tests/fixtures/keys/rsa-1024.pem");
    const RSA_PUBLIC: &str = include_str!("../../tests/fixtures/keys/rsa.pub.pem");
    const P256: &str = include_str!("../../tests/fixtures/keys/p256.pem");
    const P256_SEC1: &str = include_str!("../../tests/fixtures/keys/p256-sec1.pem");
    const P256_ENCRYPTED: &str = include_str!("../../tests/fixtures/keys/p256-encrypted.pem");
    const P384: &str = include_str!("../../tests/fixtures/keys/p384.pem");

    #[test]
    fn a_token_names_its_algorithm_and_ends_after_five_minutes() {
        let claims = Map::from_iter([("iss".to_owned(), json!("onlynew"))]);
        for (algorithm, name) in
            [(Algorithm::HS256, "HS256"), (Algorithm::HS384, "HS384"), (Algorithm::HS512, "HS512")]
        {
            let key = Key::from_passphrase(algorithm, "hush").unwrap();
            let token = key.mint(&claims, Instant::from_seconds(1_800_000_000)).unwrap();
            let parts: Vec<Value> = token
                .split('.')
                .take(2)
                .map(|part| serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap())
                .collect();
            assert_eq!(parts[0], json!({"alg": name, "typ": "JWT"}));
            assert_eq!(parts[1], json!({"iss": "onlynew", "iat": 1_800_000_000, "exp": 1_800_000_300}));
        }
    }

    #[test]
    fn a_key_fits_its_algorithm_or_is_refused() {
        use Algorithm::*;
        let fits = |algorithm, pem: &str| Key::from_pem(algorithm, pem).map(|_| ());
        for algorithm in [RS256, RS384, RS512, PS256, PS384, PS512] {
            for pem in [RSA, RSA_PKCS1, &format!("a comment\n{RSA}\n"), &RSA.replace('\n', "\r\n")] {
                assert_eq!(fits(algorithm, pem), Ok(()), "{algorithm:?}");
            }
            for pem in [P256, P384, RSA_1024] {
                assert_eq!(fits(algorithm, pem), Err(KeyError::Unfit(algorithm)));
            }
        }
        assert_eq!((fits(ES256, P256), fits(ES384, P384)), (Ok(()), Ok(())));
        for (algorithm, pem) in
            [(ES256, P384), (ES384, P256), (ES256, RSA), (ES256, RSA_PKCS1), (HS256, P256)]
        {
            assert_eq!(fits(algorithm, pem), Err(KeyError::Unfit(algorithm)), "{algorithm:?}");
        }
        for (pem, error) in [
            ("", KeyError::NotPem),
            ("hush", KeyError::NotPem),
            ("-----BEGIN DH PARAMETERS-----\nAA==\n-----END DH PARAMETERS-----", KeyError::NotPem),
            (&RSA.replace('\n', "\\n"), KeyError::Escaped),
            (RSA_PUBLIC, KeyError::Public),
            (P256_SEC1, KeyError::Sec1),
            (P256_ENCRYPTED, KeyError::Encrypted),
            (&RSA[..900], KeyError::Unfit(RS256)),
            (&RSA.replace("MII", "MIJ"), KeyError::Unfit(RS256)),
        ] {
            assert_eq!(fits(RS256, pem), Err(error), "{pem}");
        }
        assert_eq!(
            Key::from_passphrase(RS256, "hush").map(|_| ()),
            Err(KeyError::Unfit(RS256)),
            "a passphrase is no key of RSA"
        );
    }

    #[test]
    fn a_key_does_not_print_itself_and_is_told_from_others() {
        let key = |algorithm, passphrase| Key::from_passphrase(algorithm, passphrase).unwrap();
        assert_eq!(format!("{:?}", key(Algorithm::HS256, "hush")), "Key(HS256)");
        let ids =
            [key(Algorithm::HS256, "hush"), key(Algorithm::HS384, "hush"), key(Algorithm::HS256, "other")]
                .map(|key| key.identity());
        assert!(ids[0] != ids[1] && ids[0] != ids[2] && !ids.concat().contains("hush"), "{ids:?}");
    }
}
