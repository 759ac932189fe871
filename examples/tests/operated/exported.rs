//! The text that Prometheus reads.

use std::collections::{BTreeMap, BTreeSet};

use crate::queries::family;

/// All series of a scrape.
#[derive(Debug, Default)]
pub(crate) struct Exported {
    /// For each metric the labels of each of its series.
    series: BTreeMap<String, Vec<BTreeMap<String, String>>>,
}

impl Exported {
    pub(crate) fn parse(text: &str) -> Self {
        let mut exported = Exported::default();
        for line in text.lines().filter(|line| line.starts_with("distlock_")) {
            let end = line.find(['{', ' ']).unwrap();
            let (metric, rest) = line.split_at(end);
            let mut labels = BTreeMap::new();
            let mut rest = rest.strip_prefix('{').unwrap_or_default();
            while let Some((name, value)) = rest.split_once("=\"") {
                let (value, next) = value.split_once('"').unwrap();
                labels.insert(name.trim_start_matches(',').to_owned(), value.to_owned());
                rest = next;
            }
            exported
                .series
                .entry(metric.to_owned())
                .or_default()
                .push(labels);
        }
        exported
    }

    /// The labels that a metric has; `None` if it is not exported.
    pub(crate) fn labels(&self, metric: &str) -> Option<BTreeSet<String>> {
        let series = self.series.get(metric)?;
        Some(
            series
                .iter()
                .flat_map(|labels| labels.keys().cloned())
                .collect(),
        )
    }

    pub(crate) fn has(&self, metric: &str, label: &str, value: &str) -> bool {
        let mut series = self.series.get(metric).into_iter().flatten();
        series.any(|labels| labels.get(label).is_some_and(|known| known == value))
    }

    /// The metrics, each histogram once.
    pub(crate) fn families(&self) -> impl Iterator<Item = String> {
        self.series.keys().map(|metric| family(metric).to_owned())
    }
}

#[test]
fn series_are_read() {
    let exported = Exported::parse(
        "# TYPE distlock_held gauge\ndistlock_held{lock=\"a:<b>\",x=\"y\"} 3\ndistlock_renewal_slack_seconds_sum 1.5\n",
    );
    assert!(
        exported.has("distlock_held", "lock", "a:<b>") && exported.has("distlock_held", "x", "y")
    );
    assert!(!exported.has("distlock_held", "lock", "y"));
    assert_eq!(
        exported.labels("distlock_renewal_slack_seconds_sum"),
        Some(BTreeSet::new())
    );
    assert_eq!(exported.labels("distlock_lost_total"), None);
}
