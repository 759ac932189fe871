//! Collects the data that a server reports, and its response times, without judging them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use distlock::__doctor::{Server, ServerConnection, ServerRole};
use distlock::Error;

/// Number of round trips that are measured.
const ROUND_TRIPS: usize = 20;

/// The settings that matter to locks and are not in `INFO`. Before Redis 7, each must be requested
/// separately.
const SETTINGS: &[&str] = &["appendfsync", "save", "client-output-buffer-limit"];

/// The additional settings of a cluster's primaries.
const CLUSTER_SETTINGS: &[&str] = &[
    "cluster-require-full-coverage",
    "cluster-allow-pubsubshard-when-down",
    "cluster-node-timeout",
];

/// Fields by their names, or why they are unknown.
type Fields = Result<BTreeMap<String, String>, String>;

/// The data that a server reports about itself. Locks need none of it, so a server may withhold it.
#[derive(Debug)]
pub(super) struct ServerFacts {
    pub(super) server: String,
    /// The role of the server in the store.
    pub(super) role: ServerRole,
    /// Why the server cannot be queried.
    pub(super) outage: Option<String>,
    /// The fields of `INFO`, or of `SENTINEL MASTER` for a sentinel.
    pub(super) info: Fields,
    /// The reply to `CONFIG GET`. A setting that the server does not have is missing.
    pub(super) settings: Fields,
    /// The durations of the round trips.
    pub(super) round_trips: Vec<Duration>,
    /// How many microseconds its clock is ahead of ours, and how much of that may be latency.
    pub(super) clock: Option<(i64, Duration)>,
}

impl ServerFacts {
    /// Queries a server about itself.
    pub(super) async fn of(server: &Server) -> Self {
        let mut facts = ServerFacts {
            server: server.address.clone(),
            role: server.role.clone(),
            outage: None,
            info: Ok(BTreeMap::new()),
            settings: Ok(BTreeMap::new()),
            round_trips: Vec::with_capacity(ROUND_TRIPS),
            clock: None,
        };
        facts.outage = match facts.query(server).await {
            Err(Error::Unavailable { outage, detail, .. }) => Some(format!("{detail} ({outage})")),
            Err(error) => Some(error.to_string()),
            Ok(()) => None,
        };
        facts
    }

    async fn query(&mut self, server: &Server) -> Result<(), Error> {
        let connection = server.connect().await?;
        if let ServerRole::Sentinel { service } = &server.role {
            let fields = connection.send(&["SENTINEL", "MASTER", service]).await;
            self.info = fields.map_err(detail);
            return Ok(());
        }
        if connection.is_proxied() {
            let proxied = "not available through a proxy";
            (self.info, self.settings) = (Err(proxied.into()), Err(proxied.into()));
        } else {
            self.info = info(&connection).await.map_err(detail);
            let settings = settings(&connection, &server.role).await;
            self.settings = settings.map_err(detail);
        }
        for _ in 0..ROUND_TRIPS {
            let (took, ahead) = round_trip(&connection).await?;
            // The fastest reply has the most accurate time.
            if self.round_trips.iter().all(|other| took < *other) {
                self.clock = Some((ahead, took / 2));
            }
            self.round_trips.push(took);
        }
        Ok(())
    }
}

async fn info(connection: &ServerConnection) -> Result<BTreeMap<String, String>, Error> {
    let info: String = connection.send(&["INFO"]).await?;
    let fields = info.lines().filter_map(|line| line.split_once(':'));
    Ok(fields
        .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        .collect())
}

async fn settings(
    connection: &ServerConnection,
    role: &ServerRole,
) -> Result<BTreeMap<String, String>, Error> {
    let mut settings = BTreeMap::new();
    let of_cluster = CLUSTER_SETTINGS
        .iter()
        .filter(|_| *role == ServerRole::Primary);
    for name in SETTINGS.iter().chain(of_cluster) {
        let known: BTreeMap<_, _> = connection.send(&["CONFIG", "GET", name]).await?;
        settings.extend(known);
    }
    Ok(settings)
}

/// Returns the duration of a round trip, and how many microseconds the server's clock is ahead.
async fn round_trip(connection: &ServerConnection) -> Result<(Duration, i64), Error> {
    let (sent, wall) = (Instant::now(), SystemTime::now());
    let (seconds, micros) = connection.send(&["TIME"]).await?;
    let took = sent.elapsed();
    let server_time = Duration::from_secs(seconds).saturating_add(Duration::from_micros(micros));
    let local_time = wall.duration_since(UNIX_EPOCH).unwrap_or_default() + took / 2;
    let offset = i64::try_from(server_time.abs_diff(local_time).as_micros()).unwrap_or(i64::MAX);
    Ok((
        took,
        if server_time < local_time {
            -offset
        } else {
            offset
        },
    ))
}

fn detail(error: Error) -> String {
    match error {
        Error::Unavailable { detail, .. } => detail,
        error => error.to_string(),
    }
}
