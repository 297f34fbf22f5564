//! jobs.yaml as it is written: the types that the schema and its descriptions are derived from.
//! The checked form that the engine uses is made of these in `resolve`.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    connector_file::{RateLimitFile, SourceFile},
    de::{Entries, Spanned},
    destination_file::DestinationFile,
    hook_file::HookFile,
    job::FirstRun,
    server_file::{GateFile, ServerFile},
    text::{
        AllowPrivateForm, DurationForm, LifetimeForm, Literal, PathForm, SecretForm, ShareForm, StartForm,
        TextOr, ZoneForm,
    },
};
use crate::domain::{decide::Detect, event::ChangeKind, numbers::Numbers, version_field::OnMissingVersion};

/// What onlynew polls, and where it sends what is new.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct JobsFile {
    /// The version of this file's format: 1.
    #[schemars(with = "Option<u32>", extend("default" = 1))]
    pub(super) version: Option<Spanned<u32>>,
    /// Where onlynew keeps what it has seen: `sqlite://PATH` (a relative path starts at this file's folder)
    /// or `postgres://USER:PASSWORD@HOST/DATABASE`.
    #[schemars(extend("default" = "sqlite://onlynew.db"))]
    pub(super) store: Option<Spanned<String>>,
    /// Which addresses that are not public may be connected to. `auto`: those that local hosts lead to, which are
    /// addresses, names without dots, and names that end in `.local`, `.internal`, `.lan`, `.home.arpa`,
    /// `.localhost` or `.svc`; `true`: all; `false`: none; or a list of networks and hosts beside those of `auto`.
    #[schemars(with = "Option<AllowPrivateForm>", extend("default" = "auto"))]
    pub(super) allow_private: Option<Spanned<Literal>>,
    /// Accounts by name: a connector with credentials. All jobs of an account share one rate limit.
    pub(super) accounts: Option<Entries<Spanned<AccountFile>>>,
    /// Destinations by name: the n8n webhooks that receive what is new.
    pub(super) destinations: Option<Entries<Spanned<DestinationFile>>>,
    /// How long what is stored is kept.
    pub(super) retention: Option<Spanned<RetentionFile>>,
    /// Jobs by name: a stream of an account, on a schedule, towards a destination.
    pub(super) jobs: Option<Spanned<Entries<Spanned<JobFile>>>>,
    /// Webhooks that come in, by name.
    pub(super) hooks: Option<Spanned<Entries<Spanned<HookFile>>>>,
    /// Where `onlynew run` listens. Default: `127.0.0.1:8080` where there is a `gate` or a hook, else nowhere.
    pub(super) server: Option<Spanned<ServerFile>>,
    /// The gate: whether a side effect of a workflow may happen now.
    pub(super) gate: Option<Spanned<GateFile>>,
}

/// How long what is stored is kept: a duration, or `never` for what is never purged. Events that wait or are dead stay
/// whatever their age.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RetentionFile {
    /// The bodies of events that were delivered, superseded or discarded, from then on.
    #[schemars(with = "Option<LifetimeForm>", extend("default" = "30d"))]
    pub(super) payloads: Option<Spanned<String>>,
    /// Those events themselves and the attempts to deliver them; never shorter than `payloads`, and where one of the two
    /// is left out it follows the other.
    #[schemars(with = "Option<LifetimeForm>", extend("default" = "90d"))]
    pub(super) attempts: Option<Spanned<String>>,
    /// Runs, from their end on, and what their pages held; at least `1d`.
    #[schemars(with = "Option<LifetimeForm>", extend("default" = "90d"))]
    pub(super) pages: Option<Spanned<String>>,
    /// What records were, from their versions on, where those are instants: below, a record that comes again is passed
    /// over. At least twice what any job reads again (`lookback`, `settle` and `step`), and `1d`.
    #[schemars(with = "Option<LifetimeForm>", extend("default" = "never"))]
    pub(super) keys: Option<Spanned<String>>,
}

/// A connector with credentials.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AccountFile {
    /// The connector's name. `onlynew connectors list` shows them.
    pub(super) connector: Spanned<String>,
    /// The credentials.
    pub(super) auth: Option<Spanned<CredentialsFile>>,
    /// Values for the connector's inputs, for all jobs of this account.
    pub(super) with: Option<Spanned<Entries<Spanned<Literal>>>>,
    /// How often the account may ask. Default: the connector's.
    pub(super) rate_limit: Option<RateLimitFile>,
}

/// Credentials for a source. Which ones are needed is the connector's to say.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CredentialsFile {
    /// The way of signing requests. Default: the one that the other keys fit.
    pub(super) r#type: Option<Spanned<AuthType>>,
    /// The token of `bearer`.
    #[schemars(with = "Option<SecretForm>")]
    pub(super) token: Option<Spanned<String>>,
    /// The user's name of `basic`.
    #[schemars(with = "Option<SecretForm>")]
    pub(super) username: Option<Spanned<String>>,
    /// The password of `basic`. Default: empty.
    #[schemars(with = "Option<SecretForm>")]
    pub(super) password: Option<Spanned<String>>,
    /// The key of `api_key`.
    #[schemars(with = "Option<SecretForm>")]
    pub(super) key: Option<Spanned<String>>,
    /// The client's id of OAuth2.
    #[schemars(with = "Option<SecretForm>")]
    pub(super) client_id: Option<Spanned<String>>,
    /// The client's secret of OAuth2. Default for `oauth2_refresh_token`: none, as public clients have it.
    #[schemars(with = "Option<SecretForm>")]
    pub(super) client_secret: Option<Spanned<String>>,
    /// The first refresh token of `oauth2_refresh_token`; later ones are kept in the store.
    #[schemars(with = "Option<SecretForm>")]
    pub(super) refresh_token: Option<Spanned<String>>,
    /// Where the types of OAuth2 get their access tokens: an `https` URL. Default: the connector's.
    pub(super) token_url: Option<Spanned<String>>,
    /// What the tokens of OAuth2 may be used for. Default: the connector's.
    pub(super) scope: Option<Spanned<String>>,
}

/// A way of signing requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum AuthType {
    /// Not at all.
    None,
    /// `Authorization: Bearer TOKEN`.
    Bearer,
    /// `Authorization: Basic …`, from a user's name and a password.
    Basic,
    /// A key in a header, a query parameter or a cookie.
    ApiKey,
    /// A token that a provider gives for the client's id and secret.
    #[serde(rename = "oauth2_client_credentials")]
    OAuth2ClientCredentials,
    /// A token that a provider gives for a refresh token.
    #[serde(rename = "oauth2_refresh_token")]
    OAuth2RefreshToken,
}

/// A stream of an account, on a schedule, towards a destination.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct JobFile {
    /// The name that the job had before: what is stored under it is taken over. It may stay here.
    pub(super) renamed_from: Option<Spanned<String>>,
    /// The name of an account under `accounts`.
    pub(super) account: Option<Spanned<String>>,
    /// A connector's name, in place of `account`.
    pub(super) connector: Option<Spanned<String>>,
    /// A source described here, in place of `connector` and `stream`.
    pub(super) source: Option<Spanned<SourceFile>>,
    /// The credentials, where there is no `account`.
    pub(super) auth: Option<Spanned<CredentialsFile>>,
    /// How often the source may be asked, where there is no `account`. Default: the connector's.
    pub(super) rate_limit: Option<Spanned<RateLimitFile>>,
    /// The stream's name. `onlynew connectors show NAME` lists them.
    pub(super) stream: Option<Spanned<String>>,
    /// Values for the connector's inputs.
    pub(super) with: Option<Spanned<Entries<Spanned<Literal>>>>,
    /// The period of the job, at least `1s`.
    #[schemars(with = "Option<DurationForm>")]
    pub(super) every: Option<Spanned<String>>,
    /// When the job runs, by a cron pattern.
    pub(super) schedule: Option<Spanned<ScheduleFile>>,
    /// Which versions a run asks for.
    pub(super) window: Option<Spanned<WindowFile>>,
    /// What the first run sends.
    #[schemars(extend("default" = "baseline"))]
    pub(super) first_run: Option<FirstRun>,
    /// What counts as a change.
    pub(super) changes: Option<Spanned<ChangesFile>>,
    /// How it is told that a record is gone. Default: `flag` where the stream marks deleted records, else `none`.
    pub(super) deletes: Option<Spanned<DeletesFile>>,
    /// The name of a destination under `destinations`, or a webhook's URL, or the destination itself.
    pub(super) destination: Spanned<TextOr<DestinationFile>>,
}

/// When a job runs, by a cron pattern.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ScheduleFile {
    /// The pattern: minute, hour, day, month, weekday; seconds may stand in front.
    #[schemars(extend("examples" = ["*/5 * * * *", "0 6 * * MON-FRI"]))]
    pub(super) cron: Spanned<String>,
    /// The time zone that the pattern is read in.
    #[schemars(with = "Option<ZoneForm>", extend("default" = "UTC"))]
    pub(super) timezone: Option<Spanned<String>>,
}

/// How it is told that a record is gone.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DeletesFile {
    /// The way.
    #[schemars(with = "DeleteMode")]
    pub(super) mode: Spanned<DeleteMode>,
    /// The period of the sweeps of `reconcile`, at least `1s`.
    #[schemars(with = "Option<DurationForm>", extend("default" = "1d"))]
    pub(super) every: Option<Spanned<String>>,
    /// When `reconcile` sweeps, by a cron pattern, in place of `every`.
    pub(super) schedule: Option<Spanned<ScheduleFile>>,
    /// The share of the known keys that a sweep may call gone without a person's word: `10%`, or `0.1`.
    #[schemars(with = "Option<ShareForm>", extend("default" = "10%"))]
    pub(super) max_ratio: Option<Spanned<String>>,
}

/// A way of telling that a record is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum DeleteMode {
    /// It is not told; marks of the source are left unread.
    None,
    /// The source marks it, as the stream's `deleted_when` says.
    Flag,
    /// Now and then everything is read, and what is not there any more is gone; marks of the source count, too.
    Reconcile,
}

/// Which versions a run asks for.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WindowFile {
    /// The first version of interest: a date (UTC), a timestamp, or a number where versions are numbers.
    /// Default: everything.
    #[schemars(with = "Option<StartForm>")]
    pub(super) start: Option<Spanned<String>>,
    /// How far behind the newest version known a run reads again, so that rows which show up late are met.
    #[schemars(with = "Option<DurationForm>", extend("default" = "5m"))]
    pub(super) lookback: Option<Spanned<String>>,
    /// How long the source may take to show a row: versions younger than this are not called complete.
    #[schemars(with = "Option<DurationForm>", extend("default" = "0s"))]
    pub(super) settle: Option<Spanned<String>>,
    /// How much is asked for at once, oldest first; for streams whose requests name `window.end`. Default:
    /// everything at once.
    #[schemars(with = "Option<DurationForm>")]
    pub(super) step: Option<Spanned<String>>,
}

/// What counts as a change.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ChangesFile {
    /// How a change is told. Default: `version` where records have versions, else `content`.
    #[schemars(with = "Option<Detect>")]
    pub(super) detect: Option<Spanned<Detect>>,
    /// Fields that change without meaning, left out when contents are compared.
    #[schemars(with = "Option<Vec<PathForm>>")]
    pub(super) ignore_fields: Option<Vec<Spanned<String>>>,
    /// What a record is that has no version although its stream has them.
    #[schemars(with = "Option<OnMissingVersion>", extend("default" = "include"))]
    pub(super) on_missing_version: Option<Spanned<OnMissingVersion>>,
    /// How integers beyond 2^53 - 1 go out, which JavaScript would round.
    #[schemars(extend("default" = "safe"))]
    pub(super) numbers: Option<Numbers>,
    /// The kinds of change that are sent. Default: all.
    #[schemars(with = "Option<Vec<ChangeKind>>")]
    pub(super) emit: Option<Spanned<Vec<Spanned<ChangeKind>>>>,
}
