//! What a module imports.

use syn::ext::IdentExt;
use syn::visit::{self, Visit};
use syn::{Attribute, Block, Ident, Item, UseTree, Visibility};

use crate::library::builds::{PRODUCT, attributes_of, lacks};
use crate::library::paths::NamePath;

/// One leaf of a `use`.
pub(crate) struct Import {
    /// What it is called here; `None` for a glob.
    pub(crate) name: Option<String>,
    pub(crate) path: NamePath,
    /// It stands in a function: no other module sees it.
    pub(crate) local: bool,
    /// `pub` without restriction.
    pub(crate) public: bool,
    /// Of the `use` that it stands in.
    pub(crate) attributes: Vec<Attribute>,
}

/// The imports of a module, those of its functions included.
pub(crate) fn imports(items: &[Item]) -> Vec<Import> {
    let mut imports = Imports::default();
    for item in items {
        if !matches!(item, Item::Mod(_)) {
            imports.visit_item(item);
        }
    }
    imports.found
}

/// Collects imports, also those of functions.
#[derive(Default)]
struct Imports {
    found: Vec<Import>,
    depth: usize,
}

impl<'ast> Visit<'ast> for Imports {
    fn visit_block(&mut self, block: &'ast Block) {
        self.depth += 1;
        visit::visit_block(self, block);
        self.depth -= 1;
    }

    fn visit_item(&mut self, item: &'ast Item) {
        let attributes = attributes_of(item);
        if lacks(PRODUCT, &attributes) {
            return;
        }
        match item {
            Item::Use(item) => leaves(&item.tree, &mut Vec::new(), &mut |name, path| {
                self.found.push(Import {
                    name,
                    path: NamePath::of_use(path, item.leading_colon.is_some()),
                    local: self.depth > 0,
                    public: matches!(item.vis, Visibility::Public(_)),
                    attributes: attributes.clone(),
                });
            }),
            Item::ExternCrate(item) => self.found.push(Import {
                name: Some(
                    item.rename
                        .as_ref()
                        .map_or(&item.ident, |(_, name)| name)
                        .unraw()
                        .to_string(),
                ),
                path: NamePath::of_use(vec![item.ident.unraw().to_string()], true),
                local: self.depth > 0,
                public: matches!(item.vis, Visibility::Public(_)),
                attributes,
            }),
            _ => visit::visit_item(self, item),
        }
    }
}

/// Calls back for each leaf of a `use`, with its name here and its path.
fn leaves(
    tree: &UseTree,
    prefix: &mut Vec<String>,
    leaf: &mut impl FnMut(Option<String>, Vec<String>),
) {
    let with = |prefix: &[String], ident: &Ident| {
        let mut path = prefix.to_vec();
        // The `self` in braces is the module that they stand behind.
        if ident != "self" || prefix.is_empty() {
            path.push(ident.unraw().to_string());
        }
        path
    };
    match tree {
        UseTree::Path(tree) => {
            prefix.push(tree.ident.unraw().to_string());
            leaves(&tree.tree, prefix, leaf);
            prefix.pop();
        }
        UseTree::Name(tree) => {
            let path = with(prefix, &tree.ident);
            leaf(path.last().cloned(), path);
        }
        UseTree::Rename(tree) => leaf(
            Some(tree.rename.unraw().to_string()),
            with(prefix, &tree.ident),
        ),
        UseTree::Glob(_) => leaf(None, prefix.clone()),
        UseTree::Group(tree) => {
            for tree in &tree.items {
                leaves(tree, prefix, leaf);
            }
        }
    }
}
