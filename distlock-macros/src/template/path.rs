//! The text between the angle brackets of a placeholder.

use proc_macro2::Ident;
use syn::ext::IdentExt as _;
use syn::parse::Parser as _;

/// A path such as `root.field.0.method()`.
pub(crate) struct Path {
    pub(crate) root: String,
    pub(crate) steps: Vec<PathStep>,
}

pub(crate) enum PathStep {
    Field(String),
    Index(u32),
    Call(String),
}

/// The reason why a string is not a [`Path`].
pub(crate) enum PathError {
    Empty,
    Position,
    /// A path, followed by a format.
    Format(String),
    Other,
}

impl Path {
    pub(crate) fn parse(text: &str) -> Result<Path, PathError> {
        if text.is_empty() {
            return Err(PathError::Empty);
        }
        if text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(PathError::Position);
        }
        if let Some((path, _)) = text.split_once(':')
            && Path::parse(path).is_ok()
            && !text.contains("::")
        {
            return Err(PathError::Format(path.to_owned()));
        }
        let mut steps = text.split('.');
        let root = steps.next().unwrap_or_default();
        if !is_root(root) {
            return Err(PathError::Other);
        }
        let steps = steps
            .map(|step| {
                if let Some(name) = step.strip_suffix("()") {
                    is_name(name).then(|| PathStep::Call(name.to_owned()))
                } else if step.starts_with(|c: char| c.is_ascii_digit()) {
                    index(step).map(PathStep::Index)
                } else {
                    is_name(step).then(|| PathStep::Field(step.to_owned()))
                }
            })
            .collect::<Option<Vec<PathStep>>>()
            .ok_or(PathError::Other)?;
        Ok(Path {
            root: root.to_owned(),
            steps,
        })
    }
}

/// Parses an index as Rust does: `.007` is not a field.
fn index(text: &str) -> Option<u32> {
    let index: u32 = text.parse().ok()?;
    (index.to_string() == text).then_some(index)
}

/// Accepts keywords, because `<type>` is enough for a parameter or field named `r#type`.
fn is_root(text: &str) -> bool {
    let name = Ident::parse_any.parse_str(text);
    text != "_" && name.is_ok_and(|name| name == text)
}

/// Excludes `.await`, which is not a field, and the keywords without a raw form, which cannot be
/// names.
fn is_name(text: &str) -> bool {
    is_root(text) && !["await", "self", "Self", "super", "crate"].contains(&text)
}
