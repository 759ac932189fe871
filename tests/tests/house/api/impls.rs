//! The lines of `impl`s: wherever in the library they stand.

use syn::punctuated::Punctuated;
use syn::{Attribute, Field, ImplItem, Item, ItemImpl, Path, Token, Type, Visibility};

use crate::api::exports::{Exports, exports};
use crate::api::items::{Of, generics, is_there, signature};
use crate::api::lines::{Line, tidy};
use crate::library::modules::{Library, ModuleId};
use crate::library::paths::NamePath;
use crate::library::resolve::Target;

/// The public functions of exported types, and the implementations of traits: for exported types, and of exported traits.
pub(crate) fn of_exported(library: &Library) -> Vec<Line> {
    let exports = exports(library);
    let mut lines = Vec::new();
    for (id, module) in library
        .modules
        .iter()
        .enumerate()
        .filter(|(_, module)| !module.of_tests)
    {
        for item in &module.items {
            if let Item::Impl(item) = item
                && is_there(&item.attrs)
            {
                lines.extend(of_impl(library, &exports, id, item));
            }
        }
    }
    lines
}

fn of_impl(library: &Library, exports: &Exports, module: ModuleId, item: &ItemImpl) -> Vec<Line> {
    let owner = match without_references(&item.self_ty) {
        Type::Path(of) => exported(library, exports, module, &of.path),
        _ => Named::ByOthers,
    };
    let Some((of, _)) = &item.trait_ else {
        return match owner {
            Named::ByUsers(name) => inherent(item, name),
            _ => Vec::new(),
        };
    };
    match (exported(library, exports, module, of), owner) {
        // Only distlock knows that it implements this, or that there is such a type.
        (Named::InsideOnly, _) | (_, Named::InsideOnly) => Vec::new(),
        (_, Named::ByUsers(name)) => {
            vec![of_trait(item, of, &by_its_name(&item.self_ty, name), name)]
        }
        (Named::ByUsers(name), Named::ByOthers) => {
            vec![of_trait(item, of, &tidy(&item.self_ty), name)]
        }
        (Named::ByOthers, Named::ByOthers) => Vec::new(),
    }
}

/// An exported type by the name that users know, however its path is written.
fn by_its_name(written: &Type, name: &str) -> String {
    match written {
        Type::Path(of) => {
            let arguments = of
                .path
                .segments
                .last()
                .map(|segment| tidy(&segment.arguments));
            format!("{name}{}", arguments.unwrap_or_default())
        }
        written => tidy(written),
    }
}

/// Who can name a type or a trait.
enum Named<'a> {
    ByUsers(&'a str),
    InsideOnly,
    /// It is of another crate, or a type parameter.
    ByOthers,
}

fn exported<'a>(
    library: &Library,
    exports: &'a Exports,
    module: ModuleId,
    path: &Path,
) -> Named<'a> {
    match library.resolve(module, &NamePath::of_syntax(path)).target {
        Target::Item(module, name) => match exports.get(&(module, name)) {
            Some(names) => Named::ByUsers(&names[0]),
            None => Named::InsideOnly,
        },
        Target::Foreign(_) => Named::ByOthers,
        Target::Module(_) | Target::Outside => Named::InsideOnly,
    }
}

fn without_references(of: &Type) -> &Type {
    match of {
        Type::Reference(of) => without_references(&of.elem),
        Type::Paren(of) => without_references(&of.elem),
        of => of,
    }
}

/// What stands in an `impl` without a trait. Of a generic type, the parameters belong to each function.
fn inherent(item: &ItemImpl, name: &str) -> Vec<Line> {
    let of = Of { name };
    let (parameters, wheres) = generics(&item.generics);
    let (start, of_type) = match &*item.self_ty {
        _ if parameters.is_empty() => (String::new(), name.to_owned()),
        written => (format!("impl{parameters} "), format!("<{}>", tidy(written))),
    };
    let mut lines = Vec::new();
    for item in &item.items {
        let (visibility, attributes, text) = match item {
            ImplItem::Fn(item) => {
                let name = format!("{of_type}::{}", item.sig.ident);
                (&item.vis, &item.attrs, signature(&item.sig, &name))
            }
            ImplItem::Const(item) => (
                &item.vis,
                &item.attrs,
                format!("const {of_type}::{}: {}", item.ident, tidy(&item.ty)),
            ),
            _ => continue,
        };
        if matches!(visibility, Visibility::Public(_)) && is_there(attributes) {
            lines.push(of.function(attributes, format!("{start}{text}{wheres}")));
        }
    }
    lines
}

/// An implementation, by the trait's last name: how the path to it is written changes nothing.
fn of_trait(item: &ItemImpl, of: &Path, of_type: &str, name: &str) -> Line {
    let (parameters, wheres) = generics(&item.generics);
    let unsafety = item.unsafety.map_or("", |_| "unsafe ");
    let polarity = item.modifiers.polarity.map_or("", |_| "!");
    let types: Vec<_> = item
        .items
        .iter()
        .filter_map(|item| match item {
            ImplItem::Type(item) => Some(format!("type {} = {}", item.ident, tidy(&item.ty))),
            _ => None,
        })
        .collect();
    let types = if types.is_empty() {
        String::new()
    } else {
        format!(" {{ {} }}", types.join(", "))
    };
    let of = tidy(&of.segments.last());
    let text = format!("{unsafety}impl{parameters} {polarity}{of} for {of_type}{wheres}{types}");
    Of { name }.implemented(&item.attrs, text)
}

/// What `#[derive(...)]` implements.
pub(crate) fn derived<'a>(
    attributes: &[Attribute],
    fields: impl Iterator<Item = &'a Field>,
    name: &str,
) -> Vec<Line> {
    let mut traits = Vec::new();
    for attribute in attributes
        .iter()
        .filter(|attribute| attribute.path().is_ident("derive"))
    {
        let paths = attribute.parse_args_with(Punctuated::<Path, Token![,]>::parse_terminated);
        for path in paths.expect("a list of traits") {
            if tidy(&path) == "thiserror::Error" {
                traits.push("Display".to_owned());
            }
            traits.push(tidy(&path.segments.last()));
        }
    }
    // This is thiserror's way to write an `impl From`.
    let from = fields.filter(|field| {
        field
            .attrs
            .iter()
            .any(|attribute| attribute.path().is_ident("from"))
    });
    traits.extend(from.map(|field| format!("From<{}>", tidy(&field.ty))));
    let line = |of: String| Of { name }.implemented(&[], format!("impl {of} for {name}"));
    traits.into_iter().map(line).collect()
}
