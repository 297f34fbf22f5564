//! What kind of history a seed stands for: how the source counts versions and pages, how late its rows may
//! be, what goes wrong, and what the job is told of it. Each combination is one that the rules promise
//! to get right; what they do not promise is said where it is left out.

use fastrand::Rng;
use onlynew::domain::decide::Detect;

/// Microseconds of a second.
pub const SECOND: i64 = 1_000_000;

/// How the source spells versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Versions {
    /// `2026-11-30T10:00:00Z`.
    Iso,
    /// Milliseconds since 1970.
    Millis,
    /// A counter that every change moves.
    Counter,
    /// The stream has none: every run reads everything.
    None,
}

/// How the source divides its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// A token that names the last row, over the rows as they stand at each request.
    Cursor,
    /// The same as a `Link` header.
    Link,
    /// The same as a URL in the body.
    NextUrl,
    /// Rows are counted from the start, with or without a total.
    Offset { total: bool },
    /// Pages are counted from 1.
    Number,
    /// One page holds everything.
    Single,
}

impl Pages {
    /// Whether a page starts behind a row that was read, whatever moved meanwhile.
    pub const fn by_row(self) -> bool {
        matches!(self, Self::Cursor | Self::Link | Self::NextUrl)
    }
}

/// In which order the source lists rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Oldest,
    Newest,
    /// By nothing that a reader could know.
    None,
}

/// The kind of a history. Durations are microseconds.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a habit that a source has or has not")]
pub struct Plan {
    pub seed: u64,
    pub detect: Detect,
    pub versions: Versions,
    /// The step between two versions.
    pub granule: i64,
    /// How much is asked for at once, from a source that can be asked for an end.
    pub step: Option<i64>,
    pub lookback: i64,
    pub settle: i64,
    pub pages: Pages,
    /// Rows move between the pages of a walk, where they are counted; else the listing stands still for it.
    pub shifts: bool,
    pub order: Order,
    pub page_size: usize,
    /// The job knows that rows are sorted, oldest first.
    pub says_order: bool,
    /// How long the job goes on at a page.
    pub token_ttl: Option<i64>,
    /// The source gives no more than so many rows of one listing, and says nothing.
    pub cap: Option<usize>,
    /// Rows exactly at the lower bound are left out.
    pub open_start: bool,
    /// Rows exactly at the upper bound are left out.
    pub open_end: bool,
    /// The source tells its time of day.
    pub date: bool,
    /// How far our clock is ahead of the source's.
    pub skew: i64,
    /// How old the replica may be that answers.
    pub lag: i64,
    /// How late after its time a change may become visible.
    pub lateness: i64,
    /// A row may change again under the same version.
    pub same_granule: bool,
    /// Rows may be marked as deleted, and unmarked.
    pub flags: bool,
    /// Some rows never have a version.
    pub versionless: bool,
    /// Some rows are dated in the future.
    pub future: bool,
    /// Rows may vanish, and come back.
    pub deletes: bool,
    /// The first run is a baseline.
    pub baseline: bool,
    /// Pages may repeat rows, also older states of them, or be empty in the middle.
    pub repeats: bool,
    /// Changes before the first run.
    pub before: usize,
    /// Runs before the dust settles.
    pub runs: usize,
    /// How likely a request is answered with something that is no data.
    pub trouble: f64,
    /// How likely a run or a delivery is cut off.
    pub crash: f64,
    /// How likely the receiver fails an attempt.
    pub refusal: f64,
}

impl Plan {
    /// The history that this seed stands for.
    pub fn of(seed: u64) -> Self {
        // Seeds that stand next to each other must not resemble each other.
        let mut rng = Rng::with_seed(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let rng = &mut rng;
        let versions = pick(
            rng,
            &[
                Versions::Iso,
                Versions::Iso,
                Versions::Iso,
                Versions::Millis,
                Versions::Counter,
                Versions::None,
            ],
        );
        let is_time = matches!(versions, Versions::Iso | Versions::Millis);
        let granule = match versions {
            Versions::Iso => pick(rng, &[SECOND, SECOND, 10 * SECOND]),
            Versions::Millis => SECOND / 1_000,
            Versions::Counter | Versions::None => 1,
        };
        let detect = match versions {
            Versions::None => Detect::Content,
            _ => pick(rng, &[Detect::Version, Detect::Version, Detect::Content, Detect::Either]),
        };
        let (lookback, settle) =
            if is_time { (SECOND * rng.i64(5..=30), pick(rng, &[0, 0, 6 * SECOND])) } else { (0, 0) };
        let pages = pick(
            rng,
            &[
                Pages::Cursor,
                Pages::Cursor,
                Pages::Link,
                Pages::NextUrl,
                Pages::Offset { total: true },
                Pages::Offset { total: false },
                Pages::Number,
                Pages::Single,
            ],
        );
        let same_granule = versions == Versions::Iso && chance(rng, 0.3);
        let versionless = is_time && chance(rng, 0.15);
        // Who reads an old replica cannot know from content alone which of two states is the later one.
        let lag = if is_time && !same_granule && !versionless && chance(rng, 0.4) { 4 * SECOND } else { 0 };
        // What becomes visible later than lookback and settle is not promised; nor, by version alone, is a
        // second change under one version that comes later than settle.
        let late = if same_granule && detect == Detect::Version { settle } else { lookback + settle - lag };
        // A counter has no lookback, so that the highest one seen proves what is below it only where rows
        // that change move to the end.
        let shifts = !pages.by_row() && pages != Pages::Single && chance(rng, 0.6);
        let order = match versions {
            Versions::Counter if pages.by_row() || shifts => Order::Oldest,
            _ => pick(rng, &[Order::Oldest, Order::Oldest, Order::Newest, Order::None]),
        };
        let date = chance(rng, 0.7);
        let step = (versions == Versions::Iso && chance(rng, 0.3)).then(|| SECOND * rng.i64(10..=40));
        // Steps are laid by our own clock: one that is an hour ahead makes hundreds of them.
        let skew = match (date, step) {
            (true, None) => rng.i64(-4_000..=4_000),
            (true, Some(_)) => rng.i64(-4_000..=90),
            (false, _) => rng.i64(-59..=59),
        };
        let repeats = pages.by_row() && chance(rng, 0.4);
        let future = is_time && chance(rng, 0.15);
        // What no bound can tell apart no halving can either.
        let is_fine = granule == SECOND && !versionless && !future && !repeats;
        let cap = (step.is_some() && is_fine && chance(rng, 0.6)).then_some(11);
        Self {
            seed,
            detect,
            versions,
            granule,
            step,
            lookback,
            settle,
            pages,
            shifts,
            order,
            page_size: rng.usize(1..=4),
            says_order: order == Order::Oldest && chance(rng, 0.5),
            token_ttl: (pages.by_row() && chance(rng, 0.5)).then_some(SECOND * rng.i64(5..=60)),
            cap,
            open_start: versions != Versions::None && chance(rng, 0.25),
            open_end: chance(rng, 0.5),
            date,
            skew: skew * SECOND,
            lag,
            lateness: if is_time { late } else { 0 },
            same_granule,
            flags: !same_granule && chance(rng, 0.25),
            versionless,
            future,
            deletes: chance(rng, 0.3),
            baseline: chance(rng, 0.3),
            repeats,
            before: rng.usize(0..=5),
            runs: rng.usize(2..=5),
            trouble: pick(rng, &[0.0, 0.05, 0.15]),
            crash: pick(rng, &[0.0, 0.3, 0.5]),
            refusal: pick(rng, &[0.0, 0.2]),
        }
    }

    /// Whether versions are instants.
    pub const fn is_time(&self) -> bool {
        matches!(self.versions, Versions::Iso | Versions::Millis)
    }

    /// The jobs file of this history.
    pub fn jobs_file(&self, origin: &str, receiver: &str) -> String {
        let Self { seed, pages, versions, .. } = self;
        let bounds = match (versions, self.step) {
            (Versions::None, _) => "",
            (_, None) => r#"since: "{{ window.start }}", "#,
            (_, Some(_)) => r#"since: "{{ window.start }}", until: "{{ window.end }}", "#,
        };
        let (query, pagination) = match pages {
            Pages::Cursor => {
                (r#"after: "{{ page.token }}""#, "{type: cursor, token_path: $.next}".to_owned())
            }
            Pages::Link => ("", "{type: link_header}".to_owned()),
            Pages::NextUrl => ("", "{type: next_url, next_url_path: $.next}".to_owned()),
            Pages::Offset { total } => {
                let total = if *total { ", total_path: $.total" } else { "" };
                let pagination = format!("{{type: offset{total}, shifts: {}}}", self.shifts);
                (r#"offset: "{{ page.offset }}""#, pagination)
            }
            Pages::Number => {
                let pagination =
                    format!("{{type: page_number, total_pages_path: $.pages, shifts: {}}}", self.shifts);
                (r#"page: "{{ page.number }}""#, pagination)
            }
            Pages::Single => ("", "{type: none}".to_owned()),
        };
        let ttl = self.token_ttl.map(|ttl| format!(", token_ttl: {}s", ttl / SECOND));
        let cap = self.cap.map(|cap| format!(", max_rows: {cap}"));
        let more = [ttl, cap].into_iter().flatten().collect::<String>();
        let pagination = pagination.replace('}', &format!("{more}}}"));
        let format = match versions {
            Versions::Iso => "iso8601",
            Versions::Millis => "epoch_ms",
            Versions::Counter => "integer",
            Versions::None => "",
        };
        let mut incremental = String::new();
        if !format.is_empty() {
            let open = match (self.open_start, self.open_end && self.step.is_some()) {
                (false, false) => "",
                (true, false) => ", range_start: open",
                (false, true) => ", range_end: open",
                (true, true) => ", range_start: open, range_end: open",
            };
            let coarse = if self.granule > SECOND {
                format!(", granularity: {}s", self.granule / SECOND)
            } else {
                String::new()
            };
            let order = if self.says_order { ", row_order: asc" } else { "" };
            incremental = format!("incremental: {{field: at, format: {format}{coarse}{open}{order}}}");
        }
        let window = if self.is_time() {
            let steps = self.step.map_or(String::new(), |step| {
                format!(", start: 2023-11-14T22:13:00Z, step: {}s", step / SECOND)
            });
            format!(
                "window: {{lookback: {}s, settle: {}s{steps}}}",
                self.lookback / SECOND,
                self.settle / SECOND
            )
        } else {
            String::new()
        };
        let detect = match self.detect {
            Detect::Version => "version",
            Detect::Content => "content",
            Detect::Either => "either",
        };
        format!(
            r#"
destinations:
  n8n: {{url: "{receiver}/webhook/rows", concurrency: 4, timeout: 20s, retry: {{delays: [{delays}]}}}}
jobs:
  h{seed}:
    source:
      base_url: "{origin}/h{seed}"
      request: {{path: /rows, query: {{{bounds}{query}}}}}
      records: {{path: $.items}}
      primary_key: [id]
      pagination: {pagination}
      deleted_when: record.gone
      {incremental}
    every: 1h
    first_run: {first_run}
    changes: {{detect: {detect}}}
    destination: n8n
    {window}
"#,
            // So many that no event comes to its end by bad luck.
            delays = ["1ms"; 40].join(", "),
            first_run = if self.baseline { "baseline" } else { "emit" },
        )
    }
}

/// One of these.
fn pick<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.usize(..of.len())]
}

/// Whether something of this likelihood happens.
pub fn chance(rng: &mut Rng, likelihood: f64) -> bool {
    rng.f64() < likelihood
}
