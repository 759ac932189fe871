//! The limit on how often a client opens connections to one server, whatever ends the earlier ones.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use crate::util::sync::lock;

/// The interval between connections that are opened one after the other.
const INTERVAL: Duration = Duration::from_millis(200);

/// The number of connections that may be opened at once, after a pause.
const BURST: u32 = 10;

/// Counts the connections to one server. One attempt may need several connections, for example to
/// find out which protocol the server speaks. The next attempt then waits longer.
#[derive(Debug)]
pub(crate) struct DialLimiter {
    /// The end of the connections so far, if each took one interval.
    booked_until: Mutex<Instant>,
}

impl DialLimiter {
    pub(crate) fn new() -> Self {
        DialLimiter {
            booked_until: Mutex::new(Instant::now()),
        }
    }

    /// Records a connection that is being opened.
    pub(crate) fn record(&self) {
        let mut booked_until = lock(&self.booked_until);
        *booked_until = (*booked_until).max(Instant::now()) + INTERVAL;
    }

    /// Returns how long the next attempt has to wait, if it has to.
    pub(crate) fn delay(&self) -> Option<Duration> {
        self.booked_beyond(INTERVAL * (BURST - 1))
    }

    /// Waits until the next attempt may begin.
    pub(crate) async fn ready(&self) {
        while let Some(delay) = self.delay() {
            tokio::time::sleep(delay).await;
        }
    }

    /// Returns true if a connection that can be spared leaves enough for the others.
    pub(crate) fn has_spare(&self) -> bool {
        self.booked_beyond(INTERVAL * (BURST / 2)).is_none()
    }

    fn booked_beyond(&self, allowed: Duration) -> Option<Duration> {
        let booked = lock(&self.booked_until).saturating_duration_since(Instant::now());
        Some(booked.saturating_sub(allowed)).filter(|beyond| !beyond.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_followed_by_one_attempt_per_interval() {
        let (limiter, began) = (DialLimiter::new(), Instant::now());
        for opened in 0..30 {
            assert_eq!(limiter.has_spare(), opened <= BURST / 2, "{opened}");
            limiter.ready().await;
            let waited = INTERVAL * (opened + 1).saturating_sub(BURST);
            // The timer's resolution is a millisecond.
            assert!(began.elapsed().abs_diff(waited) <= Duration::from_millis(1) * opened);
            limiter.record();
        }
        // An attempt with several connections delays the next one.
        (0..3).for_each(|_| limiter.record());
        assert!(limiter.delay() > Some(INTERVAL * 2));
        tokio::time::advance(INTERVAL * 40).await;
        assert!(limiter.has_spare());
    }
}
