//! The modules of a library, and what each of them defines and imports.

use std::collections::{BTreeMap, BTreeSet};

use syn::ext::IdentExt;
use syn::{Expr, ExprLit, Item, ItemMod, Lit, Meta};

use crate::library::Sources;
use crate::library::builds::{PRODUCT, lacks};
use crate::library::imports::{Import, imports};

/// A library: its files, and the tree of modules that begins in `lib.rs`.
pub(crate) struct Library {
    pub(crate) files: Vec<File>,
    pub(crate) modules: Vec<Module>,
}

/// One file of it.
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) text: String,
    pub(crate) syntax: syn::File,
}

/// The index of a module; that of the crate is `ROOT`.
pub(crate) type ModuleId = usize;
pub(crate) const ROOT: ModuleId = 0;

/// A module: a file, or a block in one.
#[derive(Default)]
pub(crate) struct Module {
    /// From the crate, such as `crate::store::redis`.
    pub(crate) path: String,
    pub(crate) file: usize,
    pub(crate) parent: ModuleId,
    /// Whether it is the file itself and not a block in it.
    pub(crate) is_file: bool,
    /// Whether only tests have it.
    pub(crate) of_tests: bool,
    pub(crate) children: BTreeMap<String, Child>,
    pub(crate) items: Vec<Item>,
    /// The names of what it defines.
    pub(crate) defines: BTreeSet<String>,
    pub(crate) imports: Vec<Import>,
}

/// What a `mod` line names.
#[derive(Clone, Copy)]
pub(crate) enum Child {
    Inside(ModuleId),
    /// A `#[path]` leads out of the package: a door for tests.
    Outside,
}

/// Where the files of a module's children are looked for.
struct Home {
    /// The folder of the file itself: a `#[path]` in it starts there.
    file: String,
    /// The folder of its children.
    children: String,
}

impl Library {
    /// Reads a library.
    ///
    /// # Panics
    ///
    /// If a file is not Rust, or no `mod` line leads to it, or a `mod` line leads nowhere.
    pub(crate) fn read(sources: &Sources) -> Self {
        let files = sources
            .iter()
            .map(|(path, text)| File {
                path: path.clone(),
                text: text.clone(),
                syntax: syn::parse_str(text).unwrap_or_else(|error| {
                    panic!("{path}:{}: {error}", error.span().start().line)
                }),
            })
            .collect();
        let mut library = Library {
            files,
            modules: Vec::new(),
        };
        let root = library.file("lib.rs").expect("a library has a lib.rs");
        let module = Module {
            path: "crate".to_owned(),
            file: root,
            is_file: true,
            ..Module::default()
        };
        library.add_file(module, true);
        for (index, file) in library.files.iter().enumerate() {
            assert!(
                library.modules.iter().any(|module| module.file == index),
                "{}: no `mod` line leads to this file",
                file.path
            );
        }
        library
    }

    /// The file that a module stands in.
    pub(crate) fn file_of(&self, module: ModuleId) -> &File {
        &self.files[self.modules[module].file]
    }

    fn file(&self, path: &str) -> Option<usize> {
        self.files.iter().position(|file| file.path == path)
    }

    /// Adds the module that a file is. Of `mod.rs` and its like, children lie in the same folder.
    fn add_file(&mut self, module: Module, owns_folder: bool) -> ModuleId {
        let File { path, syntax, .. } = &self.files[module.file];
        let home = Home::of(path, owns_folder);
        let of_tests = module.of_tests || lacks(PRODUCT, &syntax.attrs);
        let items = syntax.items.clone();
        self.add(Module { of_tests, ..module }, items, &home)
    }

    fn add(&mut self, module: Module, items: Vec<Item>, home: &Home) -> ModuleId {
        let id = self.modules.len();
        self.modules.push(Module {
            defines: items.iter().filter_map(defined).collect(),
            imports: imports(&items),
            ..module
        });
        for item in &items {
            if let Item::Mod(block) = item {
                let name = block.ident.unraw().to_string();
                let child = self.add_child(id, block, &name, home);
                self.modules[id].children.insert(name, child);
            }
        }
        self.modules[id].items = items;
        id
    }

    fn add_child(&mut self, parent: ModuleId, block: &ItemMod, name: &str, home: &Home) -> Child {
        let outer = &self.modules[parent];
        let child = |file, is_file| Module {
            path: format!("{}::{name}", outer.path),
            file,
            parent,
            is_file,
            of_tests: outer.of_tests || lacks(PRODUCT, &block.attrs),
            ..Module::default()
        };
        if let Some((_, items)) = &block.content {
            let folder = format!("{}/{name}", home.children);
            let home = Home {
                file: folder.clone(),
                children: folder,
            };
            let child = child(outer.file, false);
            return Child::Inside(self.add(child, items.clone(), &home));
        }
        if let Some(named) = path_attribute(block) {
            let Some(named) = normal(&format!("{}/{named}", home.file)) else {
                return Child::Outside;
            };
            let Some(file) = self.file(&named) else {
                panic!("{}: there is no {named} for `mod {name};`", outer.path)
            };
            let child = child(file, true);
            return Child::Inside(self.add_file(child, true));
        }
        for (named, owns_folder) in [
            (format!("{name}.rs"), false),
            (format!("{name}/mod.rs"), true),
        ] {
            let named = normal(&format!("{}/{named}", home.children));
            if let Some(file) = named.and_then(|named| self.file(&named)) {
                let child = child(file, true);
                return Child::Inside(self.add_file(child, owns_folder));
            }
        }
        panic!("{}: there is no file for `mod {name};`", outer.path)
    }
}

impl Home {
    fn of(file: &str, owns_folder: bool) -> Self {
        let folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
        let children = if owns_folder {
            folder
        } else {
            file.trim_end_matches(".rs")
        };
        Home {
            file: folder.to_owned(),
            children: children.to_owned(),
        }
    }
}

/// Whether a `mod` line of a file is a door for tests: a `#[path]` that leads out of the package.
pub(crate) fn is_door(file: &str, block: &ItemMod) -> bool {
    let folder = Home::of(file, true).file;
    path_attribute(block).is_some_and(|named| normal(&format!("{folder}/{named}")).is_none())
}

fn path_attribute(block: &ItemMod) -> Option<String> {
    block
        .attrs
        .iter()
        .find_map(|attribute| match &attribute.meta {
            Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
                Expr::Lit(ExprLit {
                    lit: Lit::Str(path),
                    ..
                }) => Some(path.value()),
                _ => None,
            },
            _ => None,
        })
}

/// A path without `.` and `..`; `None` if it leads out of the sources.
fn normal(path: &str) -> Option<String> {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            _ => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// The name of what an item defines; modules and imports are kept elsewhere.
pub(crate) fn defined(item: &Item) -> Option<String> {
    let ident = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::TraitAlias(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(ident.unraw().to_string())
}
