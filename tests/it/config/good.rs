//! Good configurations: what is written comes out, what is left out has its default.

use std::{fs, num::NonZeroU32, path::Path, sync::Arc, time::Duration};

use onlynew::{
    config::{
        account::{Auth, Grant},
        catalog,
        destination::WebhookAuth,
        job::{FirstRun, Job},
        load, load_str,
        stream::{PageKind, Place, RecordFormat, Shape},
        template::{Template, template_value},
    },
    domain::{
        batch::BatchRules,
        decide::Detect,
        delivery::DEFAULT_DELAYS,
        event::ChangeKind,
        fires::Schedule,
        instant::Instant,
        lane::{Lanes, OnDead, Order},
        numbers::Numbers,
        rate::Rate,
        retention::Retention,
        version::{Version, VersionFormat},
        version_field::OnMissingVersion,
    },
};
use secrecy::ExposeSecret;

use super::{config, env, read};

fn job(yaml: &str, name: &str) -> Arc<Job> {
    Arc::clone(config(yaml).jobs.get(name).expect("the job is there"))
}

const SHORTEST: &str = r#"
jobs:
  issues:
    connector: github
    auth: {token: "${GITHUB_TOKEN}"}
    with: {owner: acme, repo: shop}
    stream: issues
    every: 5m
    destination: https://n8n.example.com/webhook/issues
"#;

#[test]
fn the_shortest_file_has_every_default() {
    let config = config(SHORTEST);
    assert_eq!(config.store, "sqlite://onlynew.db");
    assert!(config.warnings.is_empty());
    let job = &config.jobs["issues"];
    assert!(job.account.bucket.starts_with("github:") && job.account.bucket.len() == "github:".len() + 12);
    assert_eq!(job.account.connector, "github");
    let Auth::Bearer { token } = &job.account.auth else { panic!("{:?}", job.account.auth) };
    assert_eq!(token.expose_secret(), "ghp_do-not-show-me");
    assert_eq!(job.account.rate_limit.as_ref().map(|limit| limit.requests.get()), Some(5000));
    assert_eq!(job.inputs["owner"], "acme");
    assert_eq!(job.inputs["base_url"], "https://api.github.com");
    assert_eq!(job.schedule, Schedule::Every(Duration::from_mins(5)));
    assert_eq!(job.window.start, None);
    assert_eq!(job.window.lookback, Duration::from_mins(5));
    assert_eq!(job.window.settle, Duration::ZERO);
    assert_eq!(job.window.granularity, Duration::from_secs(1));
    assert_eq!(job.window.precision, 1_000_000);
    assert!(job.window.is_time && !job.window.open_start);
    assert_eq!(job.first_run, FirstRun::Baseline);
    assert_eq!(job.detect, Detect::Version);
    assert_eq!(job.ignored.iter().map(ToString::to_string).collect::<Vec<_>>(), ["updated_at", "id"]);
    assert_eq!(job.emit, ChangeKind::ALL);
    assert_eq!(job.destination.name, "https://n8n.example.com/webhook/issues");
    assert_eq!(job.destination.concurrency, 4);
    assert_eq!(job.destination.timeout, Duration::from_secs(30));
    assert_eq!(job.destination.delays, DEFAULT_DELAYS);
    assert!(matches!(job.destination.auth, WebhookAuth::None));
}

#[test]
fn the_long_form_says_everything_itself() {
    let config = config(
        r#"
version: 1
store: sqlite:///var/lib/onlynew/onlynew.db
accounts:
  acme: {connector: github, auth: {token: "${GITHUB_TOKEN}"}, with: {owner: acme}, rate_limit: {requests: 10, per: 1s}}
destinations:
  orders:
    url: https://n8n.example.com/webhook/orders
    auth: {type: header, name: X-Token, value: "${N8N_TOKEN}"}
    concurrency: 2
    timeout: 10s
    retry: {delays: [5s, 1m30s]}
jobs:
  issues:
    account: acme
    stream: issues
    with: {repo: shop}
    schedule: {cron: "*/5 * * * *", timezone: Europe/Zagreb}
    window: {start: 2026-01-01, lookback: 15m, settle: 30s}
    first_run: emit
    changes: {detect: either, ignore_fields: [comments, $.reactions.total_count], emit: [updated, created]}
    destination: orders
  more:
    account: acme
    stream: issues
    with: {repo: more, owner: other}
    every: 90s
    window: {start: "2026-01-01T12:00:00+02:00"}
    destination: orders
"#,
    );
    assert_eq!(config.store, "sqlite:///var/lib/onlynew/onlynew.db");
    let (issues, more) = (&config.jobs["issues"], &config.jobs["more"]);
    assert!(
        Arc::ptr_eq(&issues.account, &more.account) && Arc::ptr_eq(&issues.destination, &more.destination)
    );
    assert_eq!(issues.account.bucket, "acme");
    assert_eq!(issues.account.rate_limit.as_ref().map(|limit| limit.requests.get()), Some(10));
    assert_eq!((&issues.inputs["owner"], &issues.inputs["repo"]), (&"acme".into(), &"shop".into()));
    assert_eq!((&more.inputs["owner"], &more.inputs["repo"]), (&"other".into(), &"more".into()));
    assert!(
        matches!(&issues.schedule, Schedule::Cron { pattern, .. } if pattern.to_string() == "*/5 * * * *")
    );
    let instant = |text: &str| Some(Version(text.parse::<Instant>().expect("an instant").micros()));
    assert_eq!(issues.window.start, instant("2026-01-01T00:00:00Z"));
    assert_eq!(more.window.start, instant("2026-01-01T10:00:00Z"));
    assert_eq!(issues.window.settle, Duration::from_secs(30));
    assert_eq!((issues.first_run, issues.detect), (FirstRun::Emit, Detect::Either));
    assert_eq!(issues.ignored.len(), 4);
    assert_eq!(issues.emit, [ChangeKind::Created, ChangeKind::Updated]);
    let WebhookAuth::Header { name, value: key } = &issues.destination.auth else { panic!() };
    assert_eq!((name.as_str(), key.expose_secret()), ("X-Token", "n8n-do-not-show-me"));
    assert_eq!(issues.destination.delays, [Duration::from_secs(5), Duration::from_secs(90)]);
}

#[test]
fn a_destination_says_how_its_events_go_out() {
    let destination = |keys: &str| {
        let yaml = SHORTEST.replace(
            "https://n8n.example.com/webhook/issues",
            &format!("{{url: 'https://n8n.example.com/webhook/issues'{keys}}}"),
        );
        Arc::clone(&job(&yaml, "issues").destination)
    };
    let plain = destination("");
    assert_eq!((plain.batch, plain.lanes, plain.rate_limit), (None, Lanes::default(), None));
    let events = |count| NonZeroU32::new(count).expect("some");
    assert_eq!(
        destination(", batch: {}").batch,
        Some(BatchRules { max_events: events(100), max_bytes: 1_000_000, linger: Duration::from_secs(1) })
    );
    assert_eq!(
        destination(", batch: {max_events: 1000, max_bytes: 16MB, linger: 0s}").batch,
        Some(BatchRules { max_events: events(1_000), max_bytes: 16_000_000, linger: Duration::ZERO })
    );
    assert_eq!(
        destination(", batch: {max_bytes: 1kB, linger: 5m}").batch.map(|batch| batch.max_bytes),
        Some(1_000)
    );
    let lanes = |order, on_dead, coalesces| Lanes { order, on_dead, coalesces };
    assert_eq!(destination(", order: key, on_dead: skip, coalesce: none").lanes, Lanes::default());
    assert_eq!(destination(", on_dead: hold, coalesce: latest").lanes, lanes(Order::Key, OnDead::Hold, true));
    assert_eq!(
        destination(", order: none, on_dead: skip, coalesce: none").lanes,
        lanes(Order::None, OnDead::Skip, false)
    );
    assert_eq!(
        destination(", rate_limit: {requests: 10, per: 1s}, timeout: 1h").rate_limit,
        Some(Rate { requests: events(10), per: Duration::from_secs(1) })
    );
}

#[test]
fn a_source_is_described_in_the_job_itself() {
    let job = job(
        r#"
jobs:
  orders:
    source:
      base_url: http://127.0.0.1:9000/api/
      inputs: {shop: {required: true}, zone: {type: timezone, default: Europe/Zagreb}, tags: {type: list}}
      auth: {type: api_key, name: api_key, in: query}
      request:
        path: /shops/{{ inputs.shop }}/orders
        query: {since: "{{ window.start }}", limit: 50, offset: "{{ page.offset }}", tag: "{{ inputs.tags }}"}
        headers: {Accept: application/json}
      records: {path: $.orders, filter: record.total > 0, missing: empty}
      primary_key: [shop_id, id]
      key_type: strict
      incremental: {field: changed, format: epoch_ms, request_format: iso8601, timezone: "{{ inputs.zone }}", range_start: open}
      pagination: {type: offset, total_path: "header:X-Total"}
      errors:
        - {status: 503, when: "response.code == 'busy'", action: rate_limited, wait: {from: $.retry_in, unit: seconds, pattern: "([0-9]+)"}}
        - {status: 503, action: retry, wait: 2s}
      deleted_when: record.deleted
    auth: {key: "${GITHUB_TOKEN}"}
    with: {shop: 7, tags: [new, 5]}
    every: 1m
    destination: https://n8n.example.com/webhook/orders
"#,
        "orders",
    );
    assert_eq!((job.account.connector.as_str(), job.stream_name.as_str()), ("orders", "orders"));
    assert!(job.account.bucket.starts_with("orders:"));
    let stream = &job.stream;
    assert!(matches!(&stream.base_url, Template::Literal(root) if root == "http://127.0.0.1:9000/api"));
    let incremental = stream.incremental.as_ref().expect("it has versions");
    assert_eq!(
        (incremental.format.clone(), incremental.request_format.clone()),
        (VersionFormat::EpochMs, VersionFormat::Iso8601)
    );
    assert_eq!(incremental.timezone.as_ref().and_then(|zone| zone.iana_name()), Some("Europe/Zagreb"));
    assert_eq!((job.window.granularity, job.window.precision), (Duration::from_millis(1), 1_000_000));
    assert!(job.window.open_start);
    assert!(matches!(stream.pagination.kind, PageKind::Offset));
    assert_eq!(stream.pagination.total, Some(Place::Header("x-total".to_owned())));
    assert_eq!((stream.errors.len(), stream.query.len(), stream.primary_key.len()), (2, 4, 2));
    assert_eq!(
        (&job.inputs["shop"], job.inputs["tags"].to_string()),
        (&"7".into(), r#"["new","5"]"#.to_owned())
    );
}

#[test]
fn a_login_is_the_person_s_on_top_of_the_connector_s() {
    let auth = |source: &str, own: &str| {
        let job = job(
            &format!(
                "jobs: {{j: {{source: {{base_url: 'http://h', {source} request: {{path: /a}}, primary_key: [id]}},
                   auth: {own}, every: 1m, destination: 'http://h/w'}}}}"
            ),
            "j",
        );
        let Auth::OAuth2(_) = &job.account.auth else { panic!("{:?}", job.account.auth) };
        job
    };
    let of = |job: &Arc<Job>| match &job.account.auth {
        Auth::OAuth2(oauth2) => format!(
            "{} {} {} {:?} {:?} {:?} {}",
            oauth2.token_url,
            oauth2.client_id,
            oauth2.client_secret.expose_secret(),
            oauth2.client_auth,
            oauth2.scope,
            oauth2.extra,
            match &oauth2.grant {
                Grant::ClientCredentials => "-",
                Grant::RefreshToken { refresh_token } => refresh_token.expose_secret(),
            }
        ),
        other => panic!("{other:?}"),
    };
    let vendor = "auth: {type: oauth2_client_credentials, token_url: 'https://id.test/t', scope: a b, client_auth: basic, extra: {audience: x}},";
    let plain = auth(vendor, "{client_id: me, client_secret: hush}");
    assert_eq!(of(&plain), r#"https://id.test/t me hush Basic Some("a b") [("audience", "x")] -"#);
    let own = auth(vendor, "{client_id: me, client_secret: hush, token_url: 'https://my.test/t', scope: c}");
    assert_eq!(of(&own), r#"https://my.test/t me hush Basic Some("c") [("audience", "x")] -"#);
    assert_ne!(plain.account.bucket, own.account.bucket);
    let refresh = auth("", "{client_id: me, refresh_token: r, token_url: 'http://127.0.0.1:9/t'}");
    assert_eq!(of(&refresh), "http://127.0.0.1:9/t me  Body None [] r");
    let secret =
        auth("", "{client_id: me, refresh_token: r, client_secret: new, token_url: 'http://127.0.0.1:9/t'}");
    assert_eq!(refresh.account.bucket, secret.account.bucket, "a client's new secret is no other login");
}

#[test]
fn a_limit_of_one_s_own_keeps_what_the_connector_knows_of_answers() {
    let limit = |own: &str| {
        let yaml = format!(
            "accounts: {{a: {{connector: github, auth: {{token: x}}, with: {{owner: a, repo: b}}{own}}}}}
jobs: {{j: {{account: a, stream: issues, every: 1m, destination: 'http://h/w'}}}}"
        );
        job(&yaml, "j").account.rate_limit.clone().expect("it has one")
    };
    let (vendor, own) = (limit(""), limit(", rate_limit: {requests: 7, per: 1s}"));
    assert_eq!((vendor.requests.get(), vendor.per), (5_000, Duration::from_hours(1)));
    assert_eq!((own.requests.get(), own.per), (7, Duration::from_secs(1)));
    assert_eq!((own.remaining.clone(), own.reset.clone()), (vendor.remaining, vendor.reset));
    assert_eq!(own.remaining, Some(Place::Header("x-ratelimit-remaining".to_owned())));
    let other = limit(", rate_limit: {requests: 7, per: 1s, remaining: $.left, pause: response.cost}");
    assert!(other.remaining != own.remaining && other.reset == own.reset && other.pause.is_some());
}

#[test]
fn a_request_is_the_stream_s_on_top_of_the_connector_s() {
    let job = job(SHORTEST, "issues");
    let names: Vec<&str> = job.stream.headers.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["Accept", "X-GitHub-Api-Version"]);
    let names: Vec<&str> = job.stream.query.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["state", "sort", "direction", "since", "per_page"]);
    let context: serde_json::Value =
        serde_json::from_str(r#"{"inputs":{"owner":"a","repo":"b"}}"#).expect("JSON");
    let path = job.stream.path.render(&template_value(&context)).expect("it renders");
    assert_eq!(path, "/repos/a/b/issues");
}

#[test]
fn stripe_takes_its_key_in_two_ways() {
    let with = |auth: &str, stream: &str| {
        job(
            &format!(
                "jobs: {{j: {{connector: stripe, auth: {auth}, stream: {stream}, every: 1m, destination: 'http://h/w'}}}}"
            ),
            "j",
        )
    };
    let events = with("{token: '${STRIPE_KEY}'}", "events");
    assert!(matches!(events.account.auth, Auth::Bearer { .. }));
    assert_eq!(events.detect, Detect::Version);
    let customers = with("{username: '${STRIPE_KEY}'}", "customers");
    assert!(
        matches!(&customers.account.auth, Auth::Basic { password, .. } if password.expose_secret().is_empty())
    );
    assert!(customers.stream.incremental.is_none() && customers.ignored == customers.stream.primary_key);
    assert_eq!(customers.detect, Detect::Content);
    let names: Vec<&str> = customers.stream.query.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["limit", "starting_after"]);
}

#[test]
fn inline_accounts_share_a_bucket_by_connector_root_and_credential() {
    let yaml = r#"
jobs:
  a: {connector: github, auth: {token: one}, with: {owner: x, repo: a}, stream: issues, every: 1m, destination: "http://h/w?k=1"}
  b: {connector: github, auth: {token: one}, with: {owner: y, repo: b}, stream: issues, every: 1m, destination: "http://h/w?k=1"}
  c: {connector: github, auth: {token: two}, with: {owner: x, repo: a}, stream: issues, every: 1m, destination: "http://u:p@h/v"}
  d: {connector: github, auth: {token: one}, with: {owner: x, repo: a, base_url: "http://h/"}, stream: issues, every: 1m, destination: "http://h/w?k=1"}
  e: {connector: github, with: {owner: x, repo: a}, stream: issues, every: 1m, destination: "http://h/w?k=1"}
"#;
    let config = config(yaml);
    let bucket = |name: &str| &config.jobs[name].account.bucket;
    assert!(Arc::ptr_eq(&config.jobs["a"].account, &config.jobs["b"].account));
    assert!(Arc::ptr_eq(&config.jobs["a"].destination, &config.jobs["b"].destination));
    let buckets: std::collections::HashSet<_> = ["a", "c", "d", "e"].map(bucket).into_iter().collect();
    assert_eq!(buckets.len(), 4);
    assert_eq!(config.jobs["a"].destination.name, "http://h/w");
    assert_eq!(config.jobs["c"].destination.name, "http://h/v");
}

#[test]
fn variables_are_filled_in_after_parsing_and_typed_again() {
    let yaml = r#"
jobs:
  issues:
    connector: github
    auth:
      token: ${NUMBER}
    with: {owner: "${OWNER:-acme}", repo: "a$${b}"}
    stream: issues
    every: ${PERIOD}
    destination: {url: "${N8N_URL}/webhook/x", concurrency: "${NO_SUCH_THING:-7}"}
"#;
    let errors = read(yaml).expect_err("the repository's name does not fit");
    assert!(errors.to_string().contains("`a${b}` does not fit the input `repo`"), "{errors}");
    let job = job(&yaml.replace("\"a$${b}\"", "shop"), "issues");
    assert!(matches!(&job.account.auth, Auth::Bearer { token } if token.expose_secret() == "12345"));
    assert_eq!(job.inputs["owner"], "acme");
    assert_eq!(job.schedule, Schedule::Every(Duration::from_mins(5)));
    assert_eq!(
        (job.destination.url.as_str(), job.destination.concurrency),
        ("https://n8n.example.com/webhook/x", 7)
    );
}

#[test]
fn files_and_the_store_are_found_from_the_folder_of_jobs_yaml() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("token"), "from-a-file\n").expect("written");
    let path = folder.path().join("jobs.yaml");
    fs::write(&path, SHORTEST.replace("${GITHUB_TOKEN}", "${file:token}")).expect("written");
    let config = load(&path, &env).unwrap_or_else(|errors| panic!("{errors}"));
    let Auth::Bearer { token } = &config.jobs["issues"].account.auth else { panic!() };
    assert_eq!(token.expose_secret(), "from-a-file");
    assert_eq!(config.store, format!("sqlite://{}/onlynew.db", folder.path().display()));
}

#[test]
fn a_connector_beside_jobs_yaml_comes_before_the_built_in_one() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::create_dir(folder.path().join("connectors")).expect("made");
    let connector = "description: ours\nbase_url: http://ours\nstreams:\n  issues:\n    request: {path: /issues}\n    primary_key: [id]\n    defaults: {changes: {emit: [created], ignore_fields: [a]}}\n";
    fs::write(folder.path().join("connectors/github.yaml"), connector).expect("written");
    let yaml = "jobs: {j: {connector: github, stream: issues, every: 1m, changes: {ignore_fields: [b]}, destination: 'http://h/w'}}";
    let config = load_str("jobs.yaml", yaml, folder.path(), &env).unwrap_or_else(|errors| panic!("{errors}"));
    let job = &config.jobs["j"];
    assert!(matches!(&job.stream.base_url, Template::Literal(root) if root == "http://ours"));
    assert_eq!(job.emit, [ChangeKind::Created], "a key of the connector's own");
    assert_eq!(job.ignored, ["b", "id"].map(|path| path.parse().expect("a path")), "a key that the job wins");
    let list = catalog::connectors(folder.path()).unwrap_or_else(|errors| panic!("{errors}"));
    let names: Vec<_> = list.iter().map(|found| (found.name.as_str(), found.file.is_some())).collect();
    assert_eq!(names, [("github", true), ("stripe", false)]);
    assert!(
        catalog::connector_text(folder.path(), "github")
            .expect("it is there")
            .starts_with("description: ours")
    );
    assert!(catalog::connector_text(folder.path(), "../jobs").is_none());
}

#[test]
fn the_example_at_the_top_of_the_repository_loads() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("jobs.yaml");
    let text = fs::read_to_string(&path).expect("it is there");
    assert!(text.starts_with("# yaml-language-server: $schema="));
    let config = load(&path, &env).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(config.warnings, [""; 0]);
    assert!(!config.jobs.is_empty());
}

#[test]
fn c03_a_lookback_of_zero_is_warned_of() {
    let yaml = SHORTEST.replace("every: 5m", "every: 5m\n    window: {lookback: 0s}");
    let warnings = config(&yaml).warnings;
    assert_eq!(
        warnings,
        [
            "jobs.yaml:9:24: with a lookback of 0 a row that shows up late at the source is never met; `5m` is the default"
        ]
    );
}

#[test]
fn what_is_stored_is_kept_for_as_long_as_the_file_says() {
    let day = |days: u32| Some(Duration::from_hours(24) * days);
    let default = Retention { payloads: day(30), attempts: day(90), pages: day(90), keys: None };
    assert_eq!(config(SHORTEST).retention, default);
    let kept = |text: &str| config(&format!("retention: {text}\n{}", SHORTEST.trim_start())).retention;
    let expected = Retention { payloads: Some(Duration::ZERO), keys: day(365), ..default };
    assert_eq!(kept("{payloads: 0s, keys: 365d}"), expected);
    assert_eq!(kept("{attempts: 7d}"), Retention { payloads: day(7), attempts: day(7), ..default });
    assert_eq!(kept("{payloads: 120d}"), Retention { payloads: day(120), attempts: day(120), ..default });
    assert_eq!(kept("{payloads: 7d}"), Retention { payloads: day(7), ..default });
    let expected = Retention { payloads: None, attempts: None, pages: day(14), keys: None };
    assert_eq!(kept("{payloads: never, pages: 2w, keys: never}"), expected);
}

#[test]
fn keys_that_no_job_can_forget_are_warned_of() {
    let yaml = r"
retention: {keys: 365d}
jobs:
  rows:
    source:
      base_url: https://api.example.com
      request: {path: /rows}
      primary_key: [id]
      pagination: {type: none}
    every: 5m
    destination: https://n8n.example.com/webhook/rows
";
    let told = "jobs.yaml:2:19: `keys` does nothing: no job has versions that are instants, or asks by them";
    assert_eq!(config(yaml).warnings, [told]);
}

#[test]
fn aliases_repeat_what_they_name() {
    let yaml = format!(
        "{SHORTEST}  again:\n    connector: github\n    auth: &auth {{token: x}}\n    with: {{owner: a, repo: b}}\n    stream: issues\n    every: 1m\n    destination: http://h/w\n  third:\n    connector: github\n    auth: *auth\n    with: {{owner: a, repo: c}}\n    stream: issues\n    every: 1m\n    destination: http://h/w\n"
    );
    let config = config(&yaml);
    assert!(Arc::ptr_eq(&config.jobs["again"].account, &config.jobs["third"].account));
}

#[test]
fn records_come_in_the_format_and_shape_that_a_source_says() {
    let records = |records: &str, incremental: &str, changes: &str| {
        let text = format!(
            "
jobs:
  rows:
    source:
      base_url: http://127.0.0.1:9000
      request: {{path: /rows}}
      records: {records}
      primary_key: [id]
      incremental: {incremental}
    every: 1m
    changes: {changes}
    destination: https://n8n.example.com/webhook/rows
"
        );
        job(&text, "rows")
    };
    let job = records(
        r#"{format: csv, delimiter: "\t"}"#,
        r#"{field: [updated_at, created_at], format: "%d.%m.%Y %H:%M", timezone: UTC}"#,
        "{on_missing_version: skip, numbers: raw, ignore_fields: [views]}",
    );
    assert_eq!(job.stream.records.format, RecordFormat::Csv { delimiter: b'\t' });
    assert_eq!((job.on_missing_version, job.numbers), (OnMissingVersion::Skip, Numbers::Raw));
    let ignored: Vec<String> = job.ignored.iter().map(ToString::to_string).collect();
    assert_eq!(ignored, ["updated_at", "created_at", "views", "id"]);
    assert_eq!((job.window.granularity, job.window.precision), (Duration::from_mins(1), 60_000_000));
    assert_eq!(job.version_format().name(), "%d.%m.%Y %H:%M");

    let job = records("{path: $.rates, entries: {key_as: currency}}", "{field: at, format: decimal}", "{}");
    assert_eq!(job.stream.records.shape, Shape::Entries { key_as: "currency".to_owned() });
    assert!(!job.window.is_time && job.window.granularity.is_zero());
    let job = records("{path: $.rows, columns: $.head}", "{field: at}", "{}");
    assert_eq!(job.stream.records.shape, Shape::Columns("$.head".parse().expect("a path")));
    assert_eq!((job.on_missing_version, job.numbers), (OnMissingVersion::Include, Numbers::Safe));
}

#[test]
fn every_jobs_file_of_the_readme_is_good() {
    let readme = std::fs::read_to_string("README.md").unwrap();
    let blocks = readme.split("```yaml\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let mut found = 0;
    for block in blocks.filter(|block| block.contains("jobs:")) {
        let loaded =
            onlynew::config::load_str("README.md", block, std::path::Path::new(""), &|_| Some("x".into()));
        assert!(loaded.is_ok(), "{}\n{block}", loaded.unwrap_err());
        found += 1;
    }
    assert!(found >= 2);
}
