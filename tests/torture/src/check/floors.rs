//! Whether a run was hard enough to mean something.

use crate::check::figures::Figures;
use crate::check::run::Header;

/// Something that a run must reach.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Floor {
    pub(crate) what: &'static str,
    pub(crate) reached: f64,
    pub(crate) wanted: f64,
}

impl Floor {
    pub(crate) fn passed(&self) -> bool {
        self.reached >= self.wanted
    }
}

/// Those of a full run; a shorter one, or one of a narrower profile, has none.
pub(crate) fn floors(header: &Header, figures: &Figures) -> Vec<Floor> {
    if header.profile != "all" || header.seconds < 60 {
        return Vec::new();
    }
    let minutes = header.seconds as f64 / 60.0;
    let floor = |what, reached, wanted| Floor {
        what,
        reached,
        wanted,
    };
    vec![
        floor("keys", figures.keys_acquired as f64, 64.0),
        floor("% bodies up to 5 ms", figures.short_bodies_percent, 80.0),
        floor("acquisitions", figures.acquired as f64, 20_000.0 * minutes),
        floor("% through a pushed grant", figures.pushed_percent, 30.0),
        floor(
            "grants never confirmed",
            figures.grants_never_confirmed as f64,
            200.0 * minutes,
        ),
        floor("faults", figures.faults as f64, 200.0 * minutes),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(profile: &str, seconds: u64, acquired: u64) -> Option<bool> {
        let header = Header {
            profile: profile.into(),
            seconds,
            ..Header::default()
        };
        let figures = Figures {
            acquired,
            keys_acquired: 64,
            short_bodies_percent: 80.0,
            pushed_percent: 30.0,
            grants_never_confirmed: 2000,
            faults: 2000,
            ..Figures::default()
        };
        let floors = floors(&header, &figures);
        (!floors.is_empty()).then(|| floors.iter().all(Floor::passed))
    }

    #[test]
    fn a_full_run_is_judged() {
        assert_eq!(judged("all", 60, 20_000), Some(true));
        assert_eq!(judged("all", 60, 19_999), Some(false));
        assert_eq!(judged("all", 600, 199_999), Some(false));
    }

    #[test]
    fn others_are_not() {
        assert_eq!(judged("all", 59, 0), None);
        assert_eq!(judged("calm", 60, 0), None);
    }
}
