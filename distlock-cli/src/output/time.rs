//! Times and durations, for users and for programs.

use std::time::{Duration, SystemTime};

use serde_json::Value;

/// The latest time that is shown, in the year 9999.
const MAX_TIME: Duration = Duration::from_secs(253_402_300_799);

/// Returns a time as in RFC 3339, in UTC. Clocks of servers may return any value.
pub(crate) fn rfc3339(time: SystemTime) -> String {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    let since = since.unwrap_or_default().min(MAX_TIME);
    humantime::format_rfc3339_millis(SystemTime::UNIX_EPOCH + since).to_string()
}

/// Returns the state of a lock after its work is finished, while `min_hold` keeps the key.
pub(crate) fn kept(until: SystemTime) -> String {
    format!("kept {}", kept_until(until))
}

/// Returns the same text without its first word.
pub(crate) fn kept_until(until: SystemTime) -> String {
    let text = rfc3339(until);
    let time = text.get(11..19).unwrap_or(&text);
    format!("until {time}Z, work finished")
}

/// Returns the time since then, by our clock.
pub(crate) fn ago(time: SystemTime) -> Duration {
    time.elapsed().unwrap_or_default()
}

/// Returns a duration in at most two units, such as `0.4s`, `45s`, `3m12s`, `2h05m`, `3d04h`.
pub(crate) fn short(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    if seconds < 10 {
        format!("{:.1}s", duration.as_millis() as f64 / 1000.0)
    } else if minutes == 0 {
        format!("{seconds}s")
    } else if hours == 0 {
        format!("{minutes}m{:02}s", seconds % 60)
    } else if days == 0 {
        format!("{hours}h{:02}m", minutes % 60)
    } else {
        format!("{days}d{:02}h", hours % 24)
    }
}

/// Returns whole milliseconds, or null.
pub(crate) fn millis(duration: Option<Duration>) -> Value {
    duration.map_or(Value::Null, |duration| {
        u64::try_from(duration.as_millis()).map_or(Value::Null, Value::from)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_at_most_two_units() {
        for (millis, shown) in [
            (0, "0.0s"),
            (400, "0.4s"),
            (45_900, "45s"),
            (192_000, "3m12s"),
            (7_500_000, "2h05m"),
            (273_600_000, "3d04h"),
        ] {
            assert_eq!(short(Duration::from_millis(millis)), shown);
        }
    }

    #[test]
    fn any_clock_time_is_displayed() {
        let zero = SystemTime::UNIX_EPOCH;
        assert_eq!(
            rfc3339(zero + Duration::from_secs(1)),
            "1970-01-01T00:00:01.000Z"
        );
        assert_eq!(
            rfc3339(zero - Duration::from_secs(9)),
            "1970-01-01T00:00:00.000Z"
        );
        assert!(rfc3339(zero + MAX_TIME * 2).starts_with("9999"));
        assert_eq!(
            ago(SystemTime::now() + Duration::from_secs(99)),
            Duration::ZERO
        );
    }
}
