//! What a path names: follows modules and imports to the place of a definition.

use std::ptr;

use crate::library::imports::Import;
use crate::library::modules::{Child, Library, ModuleId, ROOT};
use crate::library::paths::NamePath;

/// Imports of imports of imports: more than anybody writes, so it must be a circle.
const DEEPEST: usize = 32;

/// What a path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Module(ModuleId),
    /// Something that a module defines, or that a macro defines in it.
    Item(ModuleId, String),
    /// Something of another crate, by its whole path. Local names, such as type parameters, end here too.
    Foreign(Vec<String>),
    /// Something behind a door for tests.
    Outside,
}

/// The end of a path, and how it got there.
#[derive(Debug)]
pub(crate) struct Resolved {
    pub(crate) target: Target,
    /// What is named inside of the target: a variant, an associated function.
    pub(crate) rest: Vec<String>,
    /// The first module of another file that only imports the name, and the name there.
    pub(crate) through: Option<(ModuleId, String)>,
}

/// A name that is looked up in a module.
#[derive(Clone, Copy)]
struct Asked<'a> {
    name: &'a str,
    /// By the module itself: it sees more than others do.
    in_scope: bool,
    /// A function and a module may have the same name.
    prefers_items: bool,
}

enum Found<'a> {
    Child(Child),
    Item,
    Import(ModuleId, &'a Import),
}

impl Library {
    /// Resolves a path that stands in a module.
    pub(crate) fn resolve(&self, from: ModuleId, path: &NamePath) -> Resolved {
        self.follow(from, path, None, DEEPEST)
    }

    /// Resolves an import of a module.
    pub(crate) fn resolve_import(&self, from: ModuleId, import: &Import) -> Resolved {
        self.follow(from, &import.path, Some(import), DEEPEST)
    }

    /// The path of something that a module defines.
    pub(crate) fn path_of(&self, target: &Target) -> Vec<String> {
        let of_module = |module: ModuleId| self.modules[module].path.split("::").map(str::to_owned);
        match target {
            Target::Module(module) => of_module(*module).collect(),
            Target::Item(module, name) => of_module(*module).chain([name.clone()]).collect(),
            Target::Foreign(path) => path.clone(),
            Target::Outside => Vec::new(),
        }
    }

    /// An import that is followed is not found by its own name.
    fn follow(
        &self,
        from: ModuleId,
        path: &NamePath,
        own: Option<&Import>,
        depth: usize,
    ) -> Resolved {
        let ends = |target, rest: &[String], through| Resolved {
            target,
            rest: rest.to_vec(),
            through,
        };
        if path.absolute || depth == 0 {
            return ends(Target::Foreign(path.names.clone()), &[], None);
        }
        let (mut module, mut rest) = self.start(from, &path.names);
        // Only the first name may be one that is imported here.
        let mut in_scope = rest.len() == path.names.len();
        let mut through = None;
        loop {
            let Some((name, behind)) = rest.split_first() else {
                return ends(Target::Module(module), rest, through);
            };
            let asked = Asked {
                name,
                in_scope,
                // A path in code does not end in a module.
                prefers_items: behind.is_empty() && !path.of_use,
            };
            match self.look_up(module, &asked, own, depth) {
                None if in_scope => return ends(Target::Foreign(rest.to_vec()), &[], through),
                None | Some(Found::Item) => {
                    return ends(Target::Item(module, name.clone()), behind, through);
                }
                Some(Found::Child(Child::Outside)) => {
                    return ends(Target::Outside, behind, through);
                }
                Some(Found::Child(Child::Inside(child))) => module = child,
                Some(Found::Import(owner, import)) => {
                    if !in_scope && self.modules[owner].file != self.modules[from].file {
                        through.get_or_insert_with(|| (module, name.clone()));
                    }
                    let end = self.follow(owner, &import.path, Some(import), depth - 1);
                    match end.target {
                        Target::Module(next) => module = next,
                        target => {
                            let rest = [&end.rest, behind].concat();
                            return match target {
                                Target::Foreign(path) => {
                                    ends(Target::Foreign([path, rest].concat()), &[], through)
                                }
                                target => ends(target, &rest, through),
                            };
                        }
                    }
                }
            }
            in_scope = false;
            rest = behind;
        }
    }

    /// Takes `crate`, `self` and `super` from the front of a path.
    fn start<'p>(&self, from: ModuleId, path: &'p [String]) -> (ModuleId, &'p [String]) {
        let (mut module, mut rest) = (from, path);
        while let Some((name, behind)) = rest.split_first() {
            match name.as_str() {
                "crate" => module = ROOT,
                "self" => {}
                "super" => module = self.modules[module].parent,
                _ => break,
            }
            rest = behind;
        }
        (module, rest)
    }

    /// What a name means in a module: to itself, or to others.
    fn look_up(
        &self,
        module: ModuleId,
        asked: &Asked<'_>,
        own: Option<&Import>,
        depth: usize,
    ) -> Option<Found<'_>> {
        let this = &self.modules[module];
        let child = this
            .children
            .get(asked.name)
            .map(|child| Found::Child(*child));
        if child.is_some() && !asked.prefers_items {
            return child;
        }
        if this.defines.contains(asked.name) {
            return Some(Found::Item);
        }
        let seen = || {
            let others = this
                .imports
                .iter()
                .filter(|import| !own.is_some_and(|own| ptr::eq(own, *import)));
            others.filter(|import| asked.in_scope || !import.local)
        };
        if let Some(import) = seen().find(|import| import.name.as_deref() == Some(asked.name)) {
            return Some(Found::Import(module, import));
        }
        if child.is_some() {
            return child;
        }
        let depth = depth.checked_sub(1)?;
        let mut globs = seen().filter(|import| import.name.is_none());
        globs.find_map(|glob| {
            let end = self.follow(module, &glob.path, Some(glob), depth);
            let asked = Asked {
                in_scope: false,
                ..*asked
            };
            match end.target {
                Target::Module(globbed) if globbed != module => {
                    self.look_up(globbed, &asked, own, depth)
                }
                _ => None,
            }
        })
    }
}
