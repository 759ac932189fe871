//! Acquire and release of a lock that nobody else wants, one after another: by callers in three places, with
//! and without cores of their own, and by the peers in the same places.

use std::sync::Arc;

use super::lockers::Ours;
use super::{Context, connect, times};
use crate::baseline::{Bare, OnThread};
use crate::load;
use crate::peers::{NAMES, Peers};
use crate::place::Place;
use crate::report::{Findings, Row};
use crate::setting::Setting;
use crate::stats::{Rounds, best};

/// Of one sitting.
const ROUNDS: usize = 6;
const PAIRS: usize = 100;

#[derive(Default)]
struct Figures {
    ours: Rounds,
    local: Rounds,
    threaded: Rounds,
    peers: [Rounds; 3],
}

pub(crate) fn run(context: &Context) -> anyhow::Result<Findings> {
    let mut rows = Vec::new();
    for setting in &context.settings {
        let server = setting.start_server()?;
        for place in Place::ALL {
            let mut figures = Figures::default();
            for _ in 0..context.scale.pick(6, 2) {
                let (url, peers) = (server.url(), context.peers.clone());
                let core = setting.clients;
                figures = place.run(core, move || sitting(figures, url, place, core, peers))?;
            }
            rows.extend(figures.rows(place, setting, context.peers.is_some()));
        }
    }
    Ok(rows.into())
}

impl Figures {
    fn rows(&self, place: Place, setting: &Setting, with_peers: bool) -> Vec<Row> {
        let ours = &self.ours;
        let row = |name: String, baseline: &Rounds| {
            let what = format!("acquire + release p50, {}, {}", place.name(), setting.name);
            Row::new(what, ours.median(), "us")
                .against(name, baseline.median())
                .note(ours.ratios_to(baseline))
        };
        let bare = row("bare pair, caller's runtime".into(), &self.local);
        let mut rows = vec![
            match place {
                Place::Task | Place::CurrentThread => bare.at_most(1.3),
                Place::Root => bare,
            },
            row("bare pair, equal thread".into(), &self.threaded),
        ];
        if with_peers {
            let medians = self.peers.each_ref().map(Rounds::median);
            let fastest = best(&medians, f64::lt);
            for (index, name) in NAMES.into_iter().enumerate() {
                let row = row(name.into(), &self.peers[index]);
                rows.push(if fastest == Some(index) {
                    row.at_most(1.15)
                } else {
                    row
                });
            }
        }
        rows
    }
}

/// Rounds with threads and connections of their own: on which core a thread happens to live decides
/// what its wake-ups cost, and it seldom moves.
async fn sitting(
    mut figures: Figures,
    url: String,
    place: Place,
    core: Option<usize>,
    peers: Option<Peers>,
) -> anyhow::Result<Figures> {
    let manager = connect(&url, 1).await?.remove(0);
    let ours = Ours(manager.lock("bench:pair:ours"));
    let owner: Arc<str> = "0123456789abcdef0123456789abcdef:1".into();
    let threaded = OnThread::start(&url).await?;
    let local = Bare::connect(&url).await?;
    let [of_thread, of_local]: [Arc<str>; 2] =
        ["thread", "local"].map(|name| format!("bench:pair:{name}").into());
    if let Some(peers) = &peers {
        peers.open(place, core, &url).await?;
    }

    // The first round warms up.
    for round in 0..=ROUNDS {
        let a = load::pairs(&ours, PAIRS).await?;
        let b = times(PAIRS, || local.pair(&of_local, &owner)).await?;
        let c = times(PAIRS, || threaded.pair(&of_thread, &owner)).await?;
        if round > 0 {
            figures.ours.push_median(&a);
            figures.local.push_median(&b);
            figures.threaded.push_median(&c);
        }
        if let Some(peers) = &peers {
            for (name, rounds) in NAMES.into_iter().zip(&mut figures.peers) {
                let samples = peers.pairs(name, PAIRS).await?;
                if round > 0 {
                    rounds.push_median(&samples);
                }
            }
        }
    }
    if let Some(peers) = &peers {
        peers.close().await?;
    }
    manager.shutdown().await;
    Ok(figures)
}
