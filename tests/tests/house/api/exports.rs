//! What a library exports: its `pub use`s and `pub mod`s, from `lib.rs` on.

use std::collections::BTreeMap;

use syn::{Attribute, Ident, Item, Visibility};

use crate::api::items;
use crate::api::lines::{Line, Rank, documentation, is_hidden};
use crate::library::builds::{PUBLISHED, attributes_of, lacks};
use crate::library::modules::{Child, Library, ModuleId, ROOT, defined};
use crate::library::resolve::Target;

/// Where each exported item stands, and what users call it: the shortest name first.
pub(crate) type Exports = BTreeMap<(ModuleId, String), Vec<String>>;

/// A walk through what is public.
struct Walk<'a> {
    library: &'a Library,
    exports: Exports,
    /// What other crates define.
    foreign: Vec<(String, Vec<String>)>,
    /// The modules that users can name, and what is said of each.
    modules: Vec<(String, String)>,
}

/// The modules that a library exports, without the crate itself, and what is said of each.
pub(crate) fn modules(library: &Library) -> Vec<(String, String)> {
    walk(library).modules
}

/// All that a library exports, by the place of its definition.
pub(crate) fn exports(library: &Library) -> Exports {
    walk(library).exports
}

fn walk(library: &Library) -> Walk<'_> {
    let mut walk = Walk {
        library,
        exports: Exports::new(),
        foreign: Vec::new(),
        modules: Vec::new(),
    };
    walk.module(ROOT, "");
    walk.exported_macros();
    for names in walk.exports.values_mut() {
        names.sort_by_key(|name| (name.len(), name.clone()));
        names.dedup();
    }
    walk
}

impl Walk<'_> {
    fn module(&mut self, id: ModuleId, prefix: &str) {
        let library = self.library;
        let module = &library.modules[id];
        for import in module
            .imports
            .iter()
            .filter(|import| import.public && !import.local)
        {
            if is_hidden(&import.attributes) || lacks(PUBLISHED, &import.attributes) {
                continue;
            }
            let Some(name) = &import.name else {
                panic!(
                    "{}: `pub use {}::*` exports nobody knows what; name it",
                    module.path,
                    import.path.names.join("::")
                )
            };
            let name = format!("{prefix}{name}");
            if let Some((home, item)) = self.exported_macro(&import.path.names) {
                self.export(home, item, name);
                continue;
            }
            match library.resolve_import(id, import).target {
                Target::Module(exported) => self.inner(exported, &name, &import.attributes),
                Target::Item(module, item) => self.export(module, item, name),
                Target::Foreign(path) => self.foreign.push((name, path)),
                Target::Outside => {}
            }
        }
        for item in module.items.iter().filter(|item| is_exported(item)) {
            match (item, defined(item)) {
                (Item::Mod(item), _) => {
                    let name = item.ident.to_string();
                    if let Some(Child::Inside(child)) = module.children.get(&name) {
                        self.inner(*child, &format!("{prefix}{name}"), &item.attrs);
                    }
                }
                (_, Some(name)) => {
                    let public = format!("{prefix}{name}");
                    self.export(id, name, public);
                }
                _ => {}
            }
        }
    }

    /// What is said of a module stands in front of its `mod` line, or in its file.
    fn inner(&mut self, id: ModuleId, name: &str, attributes: &[Attribute]) {
        let mut docs = documentation(attributes);
        if self.library.modules[id].is_file {
            docs += &documentation(&self.library.file_of(id).syntax.attrs);
        }
        self.modules.push((name.to_owned(), docs));
        self.module(id, &format!("{name}::"));
    }

    fn export(&mut self, module: ModuleId, item: String, name: String) {
        self.exports.entry((module, item)).or_default().push(name);
    }

    /// The macro that a `pub use crate::its_name` gives another name, for its own may be hidden.
    fn exported_macro(&self, path: &[String]) -> Option<(ModuleId, String)> {
        let [of_crate, name] = path else { return None };
        let mut modules = self.library.modules.iter();
        let home = modules.position(|module| {
            let mut macros = module.items.iter().filter_map(exported_macro);
            !module.of_tests && macros.any(|found| found == name)
        })?;
        (of_crate == "crate").then(|| (home, name.clone()))
    }

    /// `#[macro_export]` puts a macro at the top, wherever it stands.
    fn exported_macros(&mut self) {
        for (id, module) in self.library.modules.iter().enumerate() {
            for item in &module.items {
                if let Some(name) = exported_macro(item)
                    && is_there(item)
                    && !module.of_tests
                {
                    self.export(id, name.to_string(), name.to_string());
                }
            }
        }
    }
}

fn exported_macro(item: &Item) -> Option<&Ident> {
    let Item::Macro(definition) = item else {
        return None;
    };
    let mut attributes = definition.attrs.iter();
    let exported = attributes.any(|attribute| attribute.path().is_ident("macro_export"));
    definition.ident.as_ref().filter(|_| exported)
}

fn is_exported(item: &Item) -> bool {
    let visibility = match item {
        Item::Const(item) => &item.vis,
        Item::Enum(item) => &item.vis,
        Item::Fn(item) => &item.vis,
        Item::Mod(item) => &item.vis,
        Item::Static(item) => &item.vis,
        Item::Struct(item) => &item.vis,
        Item::Trait(item) => &item.vis,
        Item::TraitAlias(item) => &item.vis,
        Item::Type(item) => &item.vis,
        Item::Union(item) => &item.vis,
        _ => return false,
    };
    matches!(visibility, Visibility::Public(_)) && is_there(item)
}

/// Whether users have it, and are told of it.
fn is_there(item: &Item) -> bool {
    let attributes = attributes_of(item);
    !is_hidden(&attributes) && !lacks(PUBLISHED, &attributes)
}

/// A line for each exported definition and its parts, and for each macro of the other crate.
pub(crate) fn definitions(library: &Library, macros: &[Line]) -> Vec<Line> {
    let walk = walk(library);
    let mut lines = Vec::new();
    for ((module, item), names) in &walk.exports {
        let items = &library.modules[*module].items;
        let named = items
            .iter()
            .filter(|candidate| defined(candidate).as_ref() == Some(item));
        // A macro that is hidden is only here under another name.
        for item in named.filter(|item| is_there(item) || exported_macro(item).is_some()) {
            lines.extend(names.iter().flat_map(|name| items::lines(item, name)));
        }
    }
    for (name, path) in &walk.foreign {
        let known = macros.iter().find(|line| path.last() == Some(&line.of));
        lines.push(known.cloned().unwrap_or_else(|| Line {
            of: name.clone(),
            rank: Rank::Definition,
            text: format!("use {} as {name}", path.join("::")),
            attributes: String::new(),
            docs: String::new(),
        }));
    }
    lines
}

/// The macros of a crate of procedural macros, by their names alone: what they take is the business of UI tests.
pub(crate) fn procedural(library: &Library) -> Vec<Line> {
    let mut lines = Vec::new();
    for item in &library.modules[ROOT].items {
        let Item::Fn(function) = item else { continue };
        let name = function.sig.ident.to_string();
        for attribute in &function.attrs {
            let text = if attribute.path().is_ident("proc_macro_attribute") {
                format!("attribute {name}")
            } else if attribute.path().is_ident("proc_macro") {
                format!("macro {name}!")
            } else if attribute.path().is_ident("proc_macro_derive") {
                format!("derive of {name}")
            } else {
                continue;
            };
            lines.push(Line {
                of: name.clone(),
                rank: Rank::Definition,
                text,
                attributes: String::new(),
                docs: documentation(&function.attrs),
            });
        }
    }
    lines
}
