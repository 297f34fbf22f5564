//! Access tokens that run out, over real sockets with a clock that counts (field case C32).

use std::{
    collections::HashMap,
    sync::{
        Arc, Barrier, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use onlynew::{
    config::{
        account::{Auth, ClientAuth, Grant, OAuth2},
        stream::{ErrorAction, PageKind},
    },
    connector::Tokens,
    domain::{clock::Clock, instant::Instant},
    limit::SystemClock,
};
use serde_json::{Value, json};
use url::form_urlencoded;

use crate::{
    both,
    connector_job::{CountingClock, Draft, Walk, body, walk},
    support::{
        database::Database,
        server::{Asked, Reply, Server},
    },
};

both!(
    c32_a_token_that_dies_in_a_back_off_is_renewed_before_the_retry,
    c32_a_token_is_renewed_a_little_before_its_end,
    c32_two_jobs_refused_at_once_renew_the_token_once,
    c32_a_second_refusal_fails_and_does_not_use_up_the_allowance,
    c32_ten_tokens_in_ten_minutes_are_enough_for_many_jobs,
    c32_two_processes_get_one_token,
    c32_a_rotated_refresh_token_is_stored_before_it_is_used,
    c32_what_could_not_be_stored_is_not_used_and_not_lost,
    a_login_of_another_configuration_is_not_used,
);

const SECRET: &str = "client-s3cret";

pub fn oauth2(provider: &Server, grant: Grant) -> OAuth2 {
    OAuth2 {
        grant,
        token_url: provider.url.parse().unwrap(),
        client_id: "app".into(),
        client_secret: SECRET.into(),
        client_auth: ClientAuth::Body,
        scope: None,
        extra: Vec::new(),
    }
}

pub fn client(provider: &Server) -> Auth {
    Auth::OAuth2(Box::new(oauth2(provider, Grant::ClientCredentials)))
}

pub fn refresh(provider: &Server, token: &str) -> Auth {
    Auth::OAuth2(Box::new(oauth2(provider, Grant::RefreshToken { refresh_token: token.into() })))
}

/// A provider that gives the tokens `t1`, `t2` and so on, each with these members beside it.
pub async fn provider(members: Value) -> Server {
    let given = AtomicUsize::new(0);
    Server::new(move |_| {
        let mut answer = members.clone();
        answer["access_token"] = json!(format!("t{}", given.fetch_add(1, Ordering::SeqCst) + 1));
        Reply::Json(answer.to_string())
    })
    .await
}

fn token_of(asked: &Asked) -> String {
    asked.header("authorization").strip_prefix("Bearer ").unwrap_or_default().to_owned()
}

/// The tokens of all requests that a server got.
fn tokens_of(server: &Server) -> Vec<String> {
    server.asked().iter().map(token_of).collect()
}

/// A page of one row, the next one named unless it is the last.
pub fn page(asked: &Asked, last: usize) -> Reply {
    let number: usize = asked.param("cursor").parse().unwrap_or(1);
    let next = (number < last).then(|| (number + 1).to_string());
    Reply::Json(json!({"items": [{"id": number}], "next": next}).to_string())
}

pub fn paged(source: &Server, auth: Auth) -> Draft {
    Draft::new(&source.url)
        .query("cursor", "{{ page.token }}")
        .pages(PageKind::Token(body("next")))
        .auth(auth)
}

async fn kept_in(database: &Database) -> Arc<Tokens> {
    Arc::new(Tokens::kept_in(database.open().await))
}

pub async fn read(draft: Draft, clock: &Arc<CountingClock>, tokens: &Arc<Tokens>) -> Walk {
    walk(draft.reader(None, clock).with_tokens(Arc::clone(tokens))).await
}

/// A source that takes a token for `life` by this clock from when it first sees it.
fn takes_for(
    life: Duration,
    clock: &Arc<CountingClock>,
    asked: &Asked,
    seen: &Mutex<HashMap<String, Instant>>,
) -> bool {
    let now = clock.now();
    let first = *seen.lock().unwrap().entry(token_of(asked)).or_insert(now);
    now.since(first) < life
}

async fn c32_a_token_that_dies_in_a_back_off_is_renewed_before_the_retry(database: Database) {
    let (clock, seen, limited) = (CountingClock::start(), Mutex::default(), AtomicUsize::new(0));
    let provider = provider(json!({"token_type": "Bearer", "expires_in": 60})).await;
    let by = Arc::clone(&clock);
    let source = Server::new(move |asked| {
        if !takes_for(Duration::from_mins(1), &by, asked, &seen) {
            return Reply::status(401);
        }
        if asked.param("cursor") == "3" && limited.fetch_add(1, Ordering::SeqCst) == 0 {
            return Reply::Status(429, vec![("retry-after", "90".into())], String::new());
        }
        page(asked, 4)
    })
    .await;
    let walk = read(paged(&source, client(&provider)), &clock, &kept_in(&database).await).await;
    assert_eq!(walk.keys(), ["1", "2", "3", "4"]);
    assert_eq!(
        tokens_of(&source),
        ["t1", "t1", "t1", "t2", "t2"],
        "the retry goes out with a token that lives"
    );
    assert_eq!((provider.asked().len(), clock.waits()), (2, vec![90]));
}

async fn c32_a_token_is_renewed_a_little_before_its_end(database: Database) {
    let (clock, tokens) = (CountingClock::start(), kept_in(&database).await);
    let provider = provider(json!({"expires_in": 600})).await;
    let source = Server::new(|asked| page(asked, 1)).await;
    for (wait, expected) in [(0, "t1"), (539, "t1"), (1, "t2"), (100, "t2")] {
        clock.sleep(Duration::from_secs(wait)).await;
        assert_eq!(read(paged(&source, client(&provider)), &clock, &tokens).await.keys(), ["1"]);
        assert_eq!(tokens_of(&source).last().unwrap(), expected, "{wait}");
    }
    // Another process goes on with what is stored.
    assert_eq!(
        read(paged(&source, client(&provider)), &clock, &kept_in(&database).await).await.keys(),
        ["1"]
    );
    assert_eq!((tokens_of(&source).last().unwrap().as_str(), provider.asked().len()), ("t2", 2));
}

async fn c32_two_jobs_refused_at_once_renew_the_token_once(database: Database) {
    let (clock, tokens) = (CountingClock::start(), kept_in(&database).await);
    let provider = provider(json!({"expires_in": 3_600})).await;
    let both_asked = Barrier::new(2);
    let source = Server::new(move |asked| {
        if token_of(asked) == "t1" {
            both_asked.wait();
            return Reply::status(401);
        }
        page(asked, 1)
    })
    .await;
    let job = || {
        let (draft, clock, tokens) =
            (paged(&source, client(&provider)), Arc::clone(&clock), Arc::clone(&tokens));
        tokio::spawn(async move { read(draft, &clock, &tokens).await })
    };
    let (one, other) = (job(), job());
    for walk in [one.await.unwrap(), other.await.unwrap()] {
        assert_eq!((walk.keys(), walk.requests), (vec!["1"], 2));
    }
    assert_eq!((provider.asked().len(), source.asked().len()), (2, 4));
}

async fn c32_a_second_refusal_fails_and_does_not_use_up_the_allowance(database: Database) {
    let (clock, tokens) = (CountingClock::start(), kept_in(&database).await);
    let provider = provider(json!({"expires_in": 3_600})).await;
    // The second page is what this client may not see, whatever its token.
    let source =
        Server::new(|asked| if asked.param("cursor") == "2" { Reply::status(401) } else { page(asked, 3) })
            .await;
    let walk = read(paged(&source, client(&provider)), &clock, &tokens).await;
    let reason = walk.failure();
    assert!(
        reason.contains("page 2") && reason.contains("a fresh access token is refused as well"),
        "{reason}"
    );
    assert_eq!(walk.read_keys(), ["1"]);
    assert_eq!(tokens_of(&source), ["t1", "t1", "t2"]);
    for _ in 0..59 {
        clock.sleep(Duration::from_secs(10)).await;
        read(paged(&source, client(&provider)), &clock, &tokens).await.failure();
    }
    assert_eq!(provider.asked().len(), 2, "ten minutes of refusals cost nothing more");
    clock.sleep(Duration::from_secs(10)).await;
    read(paged(&source, client(&provider)), &clock, &tokens).await.failure();
    assert_eq!(provider.asked().len(), 3, "then a new token is tried once more");
}

async fn c32_ten_tokens_in_ten_minutes_are_enough_for_many_jobs(database: Database) {
    let (clock, tokens) = (CountingClock::start(), kept_in(&database).await);
    let by = Arc::clone(&clock);
    let given = Mutex::new(Vec::<Instant>::new());
    let provider = Server::new(move |_| {
        let (now, mut given) = (by.now(), given.lock().unwrap());
        let recent = given.iter().filter(|at| now.since(**at) < Duration::from_mins(10)).count();
        if recent >= 10 {
            return Reply::Status(429, vec![("retry-after", "600".into())], String::new());
        }
        given.push(now);
        Reply::Json(json!({"access_token": format!("t{}", given.len()), "expires_in": 90}).to_string())
    })
    .await;
    let source = Server::new(|asked| page(asked, 5)).await;
    for _ in 0..12 {
        let jobs = (0..8).map(|_| {
            let (draft, clock, tokens) =
                (paged(&source, client(&provider)), Arc::clone(&clock), Arc::clone(&tokens));
            tokio::spawn(async move { read(draft, &clock, &tokens).await })
        });
        for job in jobs.collect::<Vec<_>>() {
            assert_eq!(job.await.unwrap().keys().len(), 5);
        }
        clock.sleep(Duration::from_secs(45)).await;
    }
    // Nine minutes at one token in 81 seconds or more, for 480 requests.
    assert_eq!((provider.asked().len(), source.asked().len()), (6, 480));
}

async fn c32_two_processes_get_one_token(database: Database) {
    let provider = Server::new(|_| {
        std::thread::sleep(Duration::from_millis(300));
        Reply::Json(r#"{"access_token":"t1","expires_in":3600}"#.into())
    })
    .await;
    let source = Server::new(|asked| page(asked, 1)).await;
    let process = || {
        let (draft, url) = (paged(&source, client(&provider)), database.url().to_owned());
        tokio::spawn(async move {
            let tokens = Arc::new(Tokens::kept_in(onlynew::store::open(&url).await.unwrap()));
            let clock: Arc<dyn Clock> = Arc::new(SystemClock);
            let (job, http) = draft.job();
            let limits = Arc::new(onlynew::limit::Limits::new(Arc::clone(&clock)));
            let reader = onlynew::connector::PageReader::new(job, http, limits, clock).with_tokens(tokens);
            walk(reader).await
        })
    };
    for process in [process(), process(), process()] {
        assert_eq!(process.await.unwrap().keys(), ["1"]);
    }
    assert_eq!((provider.asked().len(), tokens_of(&source)), (1, vec!["t1".to_owned(); 3]));
}

pub fn form(asked: &Asked) -> HashMap<String, String> {
    form_urlencoded::parse(asked.body.as_bytes()).into_owned().collect()
}

/// A provider that takes each refresh token once: `r0`, then the one it gave last.
async fn rotating(expires_in: u64) -> Server {
    let given = Mutex::new(0);
    Server::new(move |asked| {
        let mut given = given.lock().unwrap();
        if form(asked)["refresh_token"] != format!("r{given}") {
            return Reply::Status(400, Vec::new(), r#"{"error":"invalid_grant"}"#.into());
        }
        *given += 1;
        let tokens = json!({"access_token": format!("t{given}"), "refresh_token": format!("r{given}"), "expires_in": expires_in});
        Reply::Json(tokens.to_string())
    })
    .await
}

async fn c32_a_rotated_refresh_token_is_stored_before_it_is_used(database: Database) {
    let clock = CountingClock::start();
    let provider = rotating(60).await;
    let source = Server::new(|asked| page(asked, 1)).await;
    for round in 1..4 {
        // Each round is another process, which knows the configuration and the store alone.
        let walk = read(paged(&source, refresh(&provider, "r0")), &clock, &kept_in(&database).await).await;
        assert_eq!(walk.keys(), ["1"]);
        assert_eq!(*tokens_of(&source).last().unwrap(), format!("t{round}"));
        assert_eq!(database.texts("SELECT refresh_token FROM account_token").await, [format!("r{round}")]);
        clock.sleep(Duration::from_mins(1)).await;
    }
    let used: Vec<_> = provider.asked().iter().map(|asked| form(asked)["refresh_token"].clone()).collect();
    assert_eq!(used, ["r0", "r1", "r2"]);
}

async fn c32_what_could_not_be_stored_is_not_used_and_not_lost(database: Database) {
    let (clock, tokens) = (CountingClock::start(), kept_in(&database).await);
    let provider = rotating(3_600).await;
    let source = Server::new(|asked| page(asked, 1)).await;
    database.break_on("account_token", "UPDATE", "NEW.number = 1").await;
    let walk = read(paged(&source, refresh(&provider, "r0")), &clock, &tokens).await;
    assert!(walk.failure().contains("could not be stored"), "{}", walk.failure());
    assert!(!walk.failure().contains("t1") && !walk.failure().contains("r1"), "{}", walk.failure());
    assert_eq!((source.asked().len(), provider.asked().len()), (0, 1), "used by nobody, asked for once");

    database.mend("account_token").await;
    assert_eq!(read(paged(&source, refresh(&provider, "r0")), &clock, &tokens).await.keys(), ["1"]);
    assert_eq!((tokens_of(&source), provider.asked().len()), (vec!["t1".to_owned()], 1));
}

async fn a_login_of_another_configuration_is_not_used(database: Database) {
    let clock = CountingClock::start();
    let provider = provider(json!({"expires_in": 3_600, "refresh_token": "rotated"})).await;
    let source = Server::new(|asked| page(asked, 1)).await;
    for (login, expected, used) in
        [("first", "t1", "first"), ("second", "t2", "second"), ("second", "t2", "second")]
    {
        let walk = read(paged(&source, refresh(&provider, login)), &clock, &kept_in(&database).await).await;
        assert_eq!(walk.keys(), ["1"]);
        assert_eq!(tokens_of(&source).last().unwrap(), expected);
        assert_eq!(form(provider.asked().last().unwrap())["refresh_token"], used);
    }
}

#[tokio::test]
async fn a_token_whose_end_is_not_told_is_used_until_it_is_refused() {
    let (clock, tokens) = (CountingClock::start(), Arc::default());
    let provider = provider(json!({})).await;
    let seen = Mutex::default();
    let by = Arc::clone(&clock);
    let source = Server::new(move |asked| {
        if takes_for(Duration::from_hours(1), &by, asked, &seen) {
            page(asked, 2)
        } else {
            Reply::status(401)
        }
    })
    .await;
    for _ in 0..3 {
        assert_eq!(read(paged(&source, client(&provider)), &clock, &tokens).await.keys(), ["1", "2"]);
        clock.sleep(Duration::from_mins(40)).await;
    }
    assert_eq!(tokens_of(&source), ["t1", "t1", "t1", "t1", "t1", "t2", "t2"]);
    assert_eq!(provider.asked().len(), 2);
}

#[tokio::test]
async fn a_token_is_never_shown_and_never_leaves_its_origin() {
    let provider = provider(json!({})).await;
    let other = Server::new(|asked| page(asked, 1)).await;
    let source =
        Server::new(|asked| Reply::Status(400, Vec::new(), format!("bad token {}", token_of(asked)))).await;
    let walk = read(paged(&source, client(&provider)), &CountingClock::start(), &Arc::default()).await;
    assert!(walk.failure().contains("bad token ***"), "{}", walk.failure());

    let away = format!("{}/rows", other.url);
    source.now_answers(move |_| Reply::Status(302, vec![("location", away.clone())], String::new()));
    let walk = read(paged(&source, client(&provider)), &CountingClock::start(), &Arc::default()).await;
    assert!(walk.failure().contains("must not go"), "{}", walk.failure());
    assert!(other.asked().is_empty());
}

#[tokio::test]
async fn a_rule_may_say_that_the_token_is_no_longer_good() {
    let provider = provider(json!({})).await;
    let source = Server::new(|asked| match token_of(asked).as_str() {
        "t1" => Reply::Json(r#"{"ok":false,"error":"token_expired"}"#.into()),
        _ => page(asked, 1),
    })
    .await;
    let draft = |auth: Auth| {
        paged(&source, auth).error(None, "response.error == 'token_expired'", ErrorAction::RefreshAuth, None)
    };
    let walk = read(draft(client(&provider)), &CountingClock::start(), &Arc::default()).await;
    assert_eq!(walk.keys(), ["1"]);
    assert_eq!(tokens_of(&source), ["t1", "t2"]);

    let walk =
        read(draft(Auth::Bearer { token: "t1".into() }), &CountingClock::start(), &Arc::default()).await;
    assert!(walk.failure().contains("a rule of `errors` says refresh_auth"), "{}", walk.failure());
}
