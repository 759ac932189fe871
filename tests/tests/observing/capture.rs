//! The log and the spans of this process.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, OnceLock};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

/// The fields of a log line or a span, as text.
pub(crate) type Fields = BTreeMap<&'static str, String>;

#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) level: Level,
    pub(crate) fields: Fields,
}

impl Line {
    pub(crate) fn contains(&self, text: &str) -> bool {
        self.fields["message"].contains(text)
    }

    pub(crate) fn is(&self, name: &str, value: &str) -> bool {
        self.fields.get(name).is_some_and(|field| field == value)
    }
}

/// A span with everything that was recorded in it.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) name: &'static str,
    pub(crate) level: Level,
    pub(crate) parent: Option<&'static str>,
    pub(crate) fields: Fields,
    pub(crate) has_ended: bool,
}

/// A layer that records all log lines and spans of `distlock`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Capture {
    lines: Arc<Mutex<Vec<Line>>>,
    spans: Arc<Mutex<BTreeMap<u64, Span>>>,
    ended: Arc<Mutex<Vec<Span>>>,
}

impl Capture {
    pub(crate) fn lines(&self) -> Vec<Line> {
        self.lines.lock().unwrap().clone()
    }

    /// Returns the log lines of one lock.
    pub(crate) fn lines_of(&self, lock: &str) -> Vec<Line> {
        let mut lines = self.lines();
        lines.retain(|line| line.is("lock", lock));
        lines
    }

    /// Returns the spans of one lock, those that have ended first.
    pub(crate) fn spans_of(&self, lock: &str) -> Vec<Span> {
        let mut spans = self.ended.lock().unwrap().clone();
        spans.extend(self.spans.lock().unwrap().values().cloned());
        spans.retain(|span| span.fields.get("lock").is_some_and(|it| it == lock));
        spans
    }
}

/// Returns the record of this process, which starts with the first call.
pub(crate) fn captured() -> &'static Capture {
    static CAPTURE: OnceLock<Capture> = OnceLock::new();
    CAPTURE.get_or_init(|| {
        let capture = Capture::default();
        let all = capture.clone().with_filter(LevelFilter::DEBUG);
        let subscriber = tracing_subscriber::registry().with(all);
        tracing::subscriber::set_global_default(subscriber).unwrap();
        capture
    })
}

impl Visit for FieldVisitor<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}

struct FieldVisitor<'a>(&'a mut Fields);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Capture {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let metadata = attributes.metadata();
        if metadata.target() != "distlock" {
            return;
        }
        let mut fields = Fields::new();
        attributes.record(&mut FieldVisitor(&mut fields));
        let parent = context
            .span(id)
            .and_then(|span| Some(span.parent()?.name()));
        let span = Span {
            name: metadata.name(),
            level: *metadata.level(),
            parent,
            fields,
            has_ended: false,
        };
        self.spans.lock().unwrap().insert(id.into_u64(), span);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _: Context<'_, S>) {
        if let Some(span) = self.spans.lock().unwrap().get_mut(&id.into_u64()) {
            values.record(&mut FieldVisitor(&mut span.fields));
        }
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if event.metadata().target() != "distlock" {
            return;
        }
        let mut fields = Fields::new();
        event.record(&mut FieldVisitor(&mut fields));
        let level = *event.metadata().level();
        self.lines.lock().unwrap().push(Line { level, fields });
    }

    fn on_close(&self, id: Id, _: Context<'_, S>) {
        if let Some(mut span) = self.spans.lock().unwrap().remove(&id.into_u64()) {
            span.has_ended = true;
            self.ended.lock().unwrap().push(span);
        }
    }
}
