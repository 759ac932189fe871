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
            acquisitions: 12_000.0,
            pushed: 15.0,
            grants_never_confirmed: 20.0,
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
    if header.topology == "sentinel" {
        floors.extend(of_failovers(figures, minutes, floor));
    }
    floors
}

/// What a failover forgets is excused, so failovers must not be all there is, nor explain many overlaps.
fn of_failovers(
    figures: &Figures,
    minutes: f64,
    floor: impl Fn(&'static str, f64, f64) -> Floor,
) -> [Floor; 3] {
    let overlaps = 100.0 * figures.overlaps_lossy as f64 / figures.acquired.max(1) as f64;
    [
        floor("failovers", figures.failovers as f64, 4.0 * minutes),
        floor(
            "% that nothing would excuse",
            figures.unexcused_percent,
            30.0,
        ),
        Floor {
            at_most: true,
            ..floor("% overlaps by failovers", overlaps, 0.2)
        },
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
    fn failovers_must_happen_and_must_not_excuse_much() {
        let header = header("all", "sentinel", 60);
        assert_eq!(judged(&header, &hard(12_000)), Some(true));
        for spoil in [
            |figures: &mut Figures| figures.failovers = 3,
            |figures: &mut Figures| figures.unexcused_percent = 29.9,
            |figures: &mut Figures| figures.overlaps_lossy += 1,
        ] {
            let mut figures = hard(12_000);
            spoil(&mut figures);
            assert_eq!(judged(&header, &figures), Some(false), "{figures:?}");
        }
    }
}
