//! Whether a run was hard enough to mean something.

use crate::check::figures::Figures;
use crate::check::run::Header;

/// Something that a run must reach, or must not exceed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Floor {
    pub(crate) what: &'static str,
    pub(crate) reached: f64,
    pub(crate) wanted: f64,
    pub(crate) at_most: bool,
}

impl Floor {
    pub(crate) fn passed(&self) -> bool {
        if self.at_most {
            self.reached <= self.wanted
        } else {
            self.reached >= self.wanted
        }
    }
}

/// What a topology must reach in a minute.
struct Pace {
    acquisitions: f64,
    /// In percent, of all: what was pushed while no server's log counted is not known.
    pushed: f64,
    grants_never_confirmed: f64,
    faults: f64,
}

/// Those of a full run; a shorter one, or one of a narrower profile, has none.
pub(crate) fn floors(header: &Header, figures: &Figures) -> Vec<Floor> {
    if header.profile == "forgetting" {
        return beyond_the_promise(figures);
    }
    if header.profile != "all" || header.seconds < 60 {
        return Vec::new();
    }
    let minutes = header.seconds as f64 / 60.0;
    let pace = match header.topology.as_str() {
        "tls" => Pace {
            acquisitions: 10_000.0,
            pushed: 30.0,
            grants_never_confirmed: 100.0,
            faults: 200.0,
        },
        // Only workers and servers break.
        "sentinel" => Pace {
            acquisitions: 8_000.0,
            pushed: 12.0,
            grants_never_confirmed: 20.0,
            faults: 50.0,
        },
        // No lock counts while there is no replica.
        "replicas" => Pace {
            acquisitions: 2_000.0,
            pushed: 15.0,
            grants_never_confirmed: 20.0,
            faults: 50.0,
        },
        // A lock takes three servers and more, and all of them are on one machine.
        "quorum3" => Pace {
            acquisitions: 6_000.0,
            pushed: 15.0,
            grants_never_confirmed: 100.0,
            faults: 300.0,
        },
        "quorum5" => Pace {
            acquisitions: 3_000.0,
            pushed: 15.0,
            grants_never_confirmed: 100.0,
            faults: 400.0,
        },
        "cluster" => Pace {
            acquisitions: 9_000.0,
            pushed: 15.0,
            grants_never_confirmed: 50.0,
            faults: 60.0,
        },
        _ => Pace {
            acquisitions: 20_000.0,
            pushed: 30.0,
            grants_never_confirmed: 200.0,
            faults: 200.0,
        },
    };
    let floor = |what, reached, wanted| Floor {
        what,
        reached,
        wanted,
        at_most: false,
    };
    let mut floors = vec![
        floor("keys", figures.keys_acquired as f64, 64.0),
        floor("% bodies up to 5 ms", figures.short_bodies_percent, 80.0),
        floor(
            "acquisitions",
            figures.acquired as f64,
            pace.acquisitions * minutes,
        ),
        floor(
            "% through a pushed grant",
            figures.pushed_percent,
            pace.pushed,
        ),
        floor(
            "grants never confirmed",
            figures.grants_never_confirmed as f64,
            pace.grants_never_confirmed * minutes,
        ),
        floor("faults", figures.faults as f64, pace.faults * minutes),
    ];
    match header.topology.as_str() {
        "sentinel" => floors.extend(of_failovers(figures, 4.0 * minutes, 30.0, floor)),
        "replicas" => floors.extend(of_replicas(figures, minutes, floor)),
        "cluster" => {
            floors.extend(of_failovers(figures, 4.0 * minutes, 75.0, floor));
            floors.extend(of_shards(figures, minutes, floor));
        }
        "quorum3" | "quorum5" => floors.extend(of_nodes(figures, minutes, floor)),
        _ => {}
    }
    floors
}

/// Slots must move, and no shard may be idle.
fn of_shards(
    figures: &Figures,
    minutes: f64,
    floor: impl Fn(&'static str, f64, f64) -> Floor,
) -> [Floor; 2] {
    let least = figures.locks_by_shard.iter().min().copied().unwrap_or(0);
    [
        floor(
            "keys moved with slots",
            figures.keys_moved as f64,
            30.0 * minutes,
        ),
        floor("locks in the idlest shard", least as f64, 2_000.0 * minutes),
    ]
}

/// Two must have believed in one lock, and lost updates by it, so that it was seen: the fence loses none (I2).
fn beyond_the_promise(figures: &Figures) -> Vec<Floor> {
    let floor = |what, reached: u64| Floor {
        what,
        reached: reached as f64,
        wanted: 1.0,
        at_most: false,
    };
    vec![
        floor("overlaps by what was forgotten", figures.overlaps_lossy),
        floor(
            "updates lost without a fence",
            figures.lost_updates_unfenced,
        ),
    ]
}

/// Nodes must forget and stand still while locks are held, which excuses nothing, and no node may be idle.
fn of_nodes(
    figures: &Figures,
    minutes: f64,
    floor: impl Fn(&'static str, f64, f64) -> Floor,
) -> [Floor; 5] {
    let least = figures.locks_by_shard.iter().min().copied().unwrap_or(0);
    [
        floor(
            "losses of a node's data",
            figures.losses as f64,
            4.0 * minutes,
        ),
        floor("freezes of a node", figures.freezes as f64, 3.0 * minutes),
        floor(
            "holds that went on meanwhile",
            figures.held_through_losses as f64,
            5.0 * minutes,
        ),
        floor("locks in the idlest node", least as f64, 2_000.0 * minutes),
        Floor {
            at_most: true,
            ..floor(
                "% excused by losses",
                100.0 - figures.unexcused_percent,
                0.0,
            )
        },
    ]
}

/// What a failover forgets is excused, so failovers must not be all there is, nor explain many overlaps.
fn of_failovers(
    figures: &Figures,
    failovers: f64,
    unexcused: f64,
    floor: impl Fn(&'static str, f64, f64) -> Floor,
) -> [Floor; 3] {
    let overlaps = 100.0 * figures.overlaps_lossy as f64 / figures.acquired.max(1) as f64;
    [
        floor("failovers", figures.failovers as f64, failovers),
        floor(
            "% that nothing would excuse",
            figures.unexcused_percent,
            unexcused,
        ),
        Floor {
            at_most: true,
            ..floor("% overlaps by failovers", overlaps, 0.2)
        },
    ]
}

/// What was acknowledged no failover forgets, so none excuses anything; and enough must be seen by a server's log.
fn of_replicas(
    figures: &Figures,
    minutes: f64,
    floor: impl Fn(&'static str, f64, f64) -> Floor,
) -> [Floor; 5] {
    let at_most = |what, reached, wanted| Floor {
        at_most: true,
        ..floor(what, reached, wanted)
    };
    [
        floor("failovers", figures.failovers as f64, 4.0 * minutes),
        floor(
            "outages of replicas",
            figures.replica_outages as f64,
            4.0 * minutes,
        ),
        floor(
            "holds that outlived one",
            figures.held_through_failovers as f64,
            12.0 * minutes,
        ),
        at_most(
            "% excused by failovers",
            100.0 - figures.unexcused_percent,
            0.0,
        ),
        at_most("% while no log counted", figures.unseen_percent, 15.0),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(profile: &str, topology: &str, seconds: u64) -> Header {
        Header {
            profile: profile.into(),
            topology: topology.into(),
            seconds,
            ..Header::default()
        }
    }

    fn hard(acquired: u64) -> Figures {
        Figures {
            acquired,
            keys_acquired: 64,
            short_bodies_percent: 80.0,
            pushed_percent: 30.0,
            grants_never_confirmed: 2000,
            faults: 2000,
            failovers: 4,
            unexcused_percent: 30.0,
            overlaps_lossy: acquired / 500,
            ..Figures::default()
        }
    }

    fn hard_with_replicas() -> Figures {
        Figures {
            unexcused_percent: 100.0,
            overlaps_lossy: 0,
            failovers: 4,
            replica_outages: 4,
            held_through_failovers: 12,
            unseen_percent: 15.0,
            ..hard(2_000)
        }
    }

    fn judged(header: &Header, figures: &Figures) -> Option<bool> {
        let floors = floors(header, figures);
        (!floors.is_empty()).then(|| floors.iter().all(Floor::passed))
    }

    #[test]
    fn a_full_run_is_judged() {
        let header = |seconds| header("all", "standalone", seconds);
        assert_eq!(judged(&header(60), &hard(20_000)), Some(true));
        assert_eq!(judged(&header(60), &hard(19_999)), Some(false));
        assert_eq!(judged(&header(600), &hard(199_999)), Some(false));
    }

    #[test]
    fn others_are_not() {
        assert_eq!(judged(&header("all", "standalone", 59), &hard(0)), None);
        assert_eq!(judged(&header("calm", "standalone", 60), &hard(0)), None);
    }

    #[test]
    fn nodes_must_forget_and_stand_still_and_that_excuses_nothing() {
        for topology in ["quorum3", "quorum5"] {
            let header = header("all", topology, 60);
            let hard = || Figures {
                unexcused_percent: 100.0,
                losses: 4,
                freezes: 3,
                held_through_losses: 5,
                locks_by_shard: vec![2_000; 3],
                ..hard(6_000)
            };
            assert_eq!(judged(&header, &hard()), Some(true));
            for spoil in [
                |figures: &mut Figures| figures.losses = 3,
                |figures: &mut Figures| figures.freezes = 2,
                |figures: &mut Figures| figures.held_through_losses = 4,
                |figures: &mut Figures| figures.locks_by_shard[2] = 1_999,
                |figures: &mut Figures| figures.unexcused_percent = 99.9,
            ] {
                let mut figures = hard();
                spoil(&mut figures);
                assert_eq!(judged(&header, &figures), Some(false), "{figures:?}");
            }
        }
    }

    #[test]
    fn beyond_the_promise_the_overlap_must_be_seen() {
        let header = header("forgetting", "quorum3", 20);
        for (overlaps, lost, expected) in [(1, 1, true), (0, 1, false), (1, 0, false)] {
            let figures = Figures {
                overlaps_lossy: overlaps,
                lost_updates_unfenced: lost,
                ..Figures::default()
            };
            assert_eq!(judged(&header, &figures), Some(expected));
        }
    }

    #[test]
    fn slots_must_move_and_each_shard_must_be_used() {
        let header = header("all", "cluster", 60);
        let hard = || Figures {
            unexcused_percent: 75.0,
            keys_moved: 30,
            locks_by_shard: vec![2_000, 9_000, 3_000],
            ..hard(12_000)
        };
        assert_eq!(judged(&header, &hard()), Some(true));
        for spoil in [
            |figures: &mut Figures| figures.keys_moved = 29,
            |figures: &mut Figures| figures.locks_by_shard[0] = 1_999,
            |figures: &mut Figures| figures.locks_by_shard.clear(),
            |figures: &mut Figures| figures.unexcused_percent = 74.9,
            |figures: &mut Figures| figures.failovers = 3,
        ] {
            let mut figures = hard();
            spoil(&mut figures);
            assert_eq!(judged(&header, &figures), Some(false), "{figures:?}");
        }
    }

    #[test]
    fn where_replicas_acknowledge_failovers_excuse_nothing_and_are_lived_through() {
        let header = header("all", "replicas", 60);
        assert_eq!(judged(&header, &hard_with_replicas()), Some(true));
        for spoil in [
            |figures: &mut Figures| figures.failovers = 3,
            |figures: &mut Figures| figures.replica_outages = 3,
            |figures: &mut Figures| figures.held_through_failovers = 11,
            |figures: &mut Figures| figures.unexcused_percent = 99.9,
            |figures: &mut Figures| figures.unseen_percent = 15.1,
        ] {
            let mut figures = hard_with_replicas();
            spoil(&mut figures);
            assert_eq!(judged(&header, &figures), Some(false), "{figures:?}");
        }
    }

    #[test]
    fn failovers_must_happen_and_must_not_excuse_much() {
        let header = header("all", "sentinel", 60);
        assert_eq!(judged(&header, &hard(8_000)), Some(true));
        for spoil in [
            |figures: &mut Figures| figures.failovers = 3,
            |figures: &mut Figures| figures.unexcused_percent = 29.9,
            |figures: &mut Figures| figures.overlaps_lossy += 1,
        ] {
            let mut figures = hard(8_000);
            spoil(&mut figures);
            assert_eq!(judged(&header, &figures), Some(false), "{figures:?}");
        }
    }
}
