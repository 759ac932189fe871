//! The arrows between files.

use std::collections::{HashMap, HashSet};
use std::fmt;

use crate::library::modules::{Library, ModuleId, ROOT};
use crate::library::paths::{Mention, mentions};
use crate::library::resolve::Target;

/// A file that imports another one, and the place where it does.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Arrow {
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) line: usize,
    /// The path that is written there.
    pub(crate) what: String,
}

impl fmt::Display for Arrow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{} uses {}, of {}",
            self.from, self.line, self.what, self.to
        )
    }
}

/// All arrows, in the order of files and lines. What a `use` brings into a file is an arrow there, and not again at each
/// place that uses the name.
pub(crate) fn arrows(library: &Library) -> Vec<Arrow> {
    let macros = macros(library);
    let (mut arrows, mut by_short_names) = (Vec::new(), Vec::new());
    for mention in mentions(library) {
        let Some(module) = target(library, &macros, &mention) else {
            continue;
        };
        let (from, to) = (library.file_of(mention.module), library.file_of(module));
        if from.path == to.path {
            continue;
        }
        let arrow = Arrow {
            from: from.path.clone(),
            to: to.path.clone(),
            line: mention.line,
            what: written(&mention),
        };
        if mention.path.of_use || mention.path.is_anchored() {
            arrows.push(arrow);
        } else {
            by_short_names.push(arrow);
        }
    }
    let imported: HashSet<_> = arrows
        .iter()
        .map(|arrow| (arrow.from.clone(), arrow.to.clone()))
        .collect();
    by_short_names.retain(|arrow| !imported.contains(&(arrow.from.clone(), arrow.to.clone())));
    arrows.append(&mut by_short_names);
    arrows.sort();
    arrows.dedup();
    arrows
}

/// The module that defines what is mentioned, if it is one of this library.
fn target(
    library: &Library,
    macros: &HashMap<String, ModuleId>,
    mention: &Mention,
) -> Option<ModuleId> {
    let resolved = library.resolve(mention.module, &mention.path);
    match resolved.target {
        Target::Module(module) => Some(module),
        Target::Item(module, name) => {
            // `#[macro_export]` puts a macro's name at the top, wherever it stands.
            let at_top = module == ROOT && !library.modules[module].defines.contains(&name);
            macros
                .get(&name)
                .copied()
                .filter(|_| at_top)
                .or(Some(module))
        }
        // A macro of `macro_rules!` is also seen by the files below it, without any path.
        Target::Foreign(names) if mention.bare_macro => macros.get(&names[0]).copied(),
        Target::Foreign(_) | Target::Outside => None,
    }
}

/// Where each `macro_rules!` stands.
fn macros(library: &Library) -> HashMap<String, ModuleId> {
    let mut macros = HashMap::new();
    for (id, module) in library.modules.iter().enumerate() {
        for item in &module.items {
            if let syn::Item::Macro(syn::ItemMacro {
                ident: Some(name), ..
            }) = item
            {
                macros.insert(name.to_string(), id);
            }
        }
    }
    macros
}

/// Paths through a module that only imports what is named, with the path to write instead.
pub(crate) fn detours(library: &Library) -> Vec<String> {
    let mut detours = Vec::new();
    for mention in mentions(library) {
        let file = &library.file_of(mention.module).path;
        // The table of contents imports as it likes.
        if file == "lib.rs" {
            continue;
        }
        let resolved = library.resolve(mention.module, &mention.path);
        let place = format!("{file}:{} uses {}", mention.line, written(&mention));
        match (resolved.through, resolved.target) {
            (Some((through, name)), target) => {
                let path = [library.path_of(&target), resolved.rest]
                    .concat()
                    .join("::");
                let through = &library.file_of(through).path;
                detours.push(format!(
                    "{place}: {through} only imports `{name}`; write {path}"
                ));
            }
            (None, Target::Module(module))
                if mention.glob && reexports(library, module, mention.module) =>
            {
                let through = &library.file_of(module).path;
                detours.push(format!(
                    "{place}: {through} has a `pub use`, and a glob takes that along; name what is used"
                ));
            }
            _ => {}
        }
    }
    detours.sort();
    detours.dedup();
    detours
}

/// Whether a glob of this module takes names along that are defined elsewhere.
fn reexports(library: &Library, module: ModuleId, asker: ModuleId) -> bool {
    let other = &library.modules[module];
    other.file != library.modules[asker].file && other.imports.iter().any(|import| !import.local)
}

fn written(mention: &Mention) -> String {
    let path = &mention.path;
    let start = if path.absolute { "::" } else { "" };
    let end = if mention.glob {
        "::*"
    } else if mention.bare_macro {
        "!"
    } else {
        ""
    };
    format!("{start}{}{end}", path.names.join("::"))
}
