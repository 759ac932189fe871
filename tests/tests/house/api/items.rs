//! The lines of definitions: of types with their public fields and variants, of traits with their functions, and of
//! functions.

use quote::ToTokens;
use syn::{
    Attribute, Field, Fields, FnArg, Generics, Item, Pat, ReceiverKind, Signature, TraitItem,
    Visibility,
};

use crate::api::impls;
use crate::api::lines::{Line, Rank, documentation, is_hidden, noticed, tidy};
use crate::library::builds::{PUBLISHED, lacks};

/// The lines of one definition that users know by this name.
pub(crate) fn lines(item: &Item, name: &str) -> Vec<Line> {
    let of = Of { name };
    match item {
        Item::Struct(item) => {
            let open = if item.fields.iter().any(|field| !is_public(field)) {
                " { .. }"
            } else {
                ""
            };
            let start = of.definition(
                &item.attrs,
                format!("struct {}{open}", with_generics(name, &item.generics)),
            );
            let mut lines = vec![start];
            lines.extend(
                item.fields
                    .iter()
                    .enumerate()
                    .filter(|(_, field)| is_public(field))
                    .map(|(nth, field)| {
                        let field_name = field
                            .ident
                            .as_ref()
                            .map_or_else(|| nth.to_string(), ToString::to_string);
                        of.part(
                            &field.attrs,
                            format!("field {name}::{field_name}: {}", tidy(&field.ty)),
                        )
                    }),
            );
            lines.extend(impls::derived(&item.attrs, item.fields.iter(), name));
            lines
        }
        Item::Enum(item) => {
            let mut lines = vec![of.definition(
                &item.attrs,
                format!("enum {}", with_generics(name, &item.generics)),
            )];
            for variant in item
                .variants
                .iter()
                .filter(|variant| is_there(&variant.attrs))
            {
                let value = variant
                    .discriminant
                    .as_ref()
                    .map(|(_, value)| format!(" = {}", tidy(value)));
                let text = format!(
                    "variant {name}::{}{}{}",
                    variant.ident,
                    fields(&variant.fields),
                    value.unwrap_or_default()
                );
                lines.push(of.part(&variant.attrs, text));
            }
            lines.extend(impls::derived(
                &item.attrs,
                item.variants.iter().flat_map(|variant| &variant.fields),
                name,
            ));
            lines
        }
        Item::Trait(item) => {
            let bounds = if item.supertraits.is_empty() {
                String::new()
            } else {
                format!(": {}", tidy(&item.supertraits))
            };
            let unsafety = item.unsafety.map_or("", |_| "unsafe ");
            let (generics, wheres) = generics(&item.generics);
            let mut lines = vec![of.definition(
                &item.attrs,
                format!("{unsafety}trait {name}{generics}{bounds}{wheres}"),
            )];
            lines.extend(item.items.iter().filter_map(|item| trait_item(&of, item)));
            lines
        }
        Item::Fn(item) => vec![Line {
            rank: Rank::Definition,
            ..of.function(&item.attrs, signature(&item.sig, name))
        }],
        Item::Type(item) => {
            vec![of.definition(
                &item.attrs,
                format!(
                    "type {} = {}",
                    with_generics(name, &item.generics),
                    tidy(&item.ty)
                ),
            )]
        }
        Item::Const(item) => {
            vec![of.definition(&item.attrs, format!("const {name}: {}", tidy(&item.ty)))]
        }
        Item::Static(item) => {
            vec![of.definition(&item.attrs, format!("static {name}: {}", tidy(&item.ty)))]
        }
        Item::Macro(item) => vec![of.definition(&item.attrs, format!("macro {name}!"))],
        other => panic!("there is no line for `{}` yet", tidy(other)),
    }
}

/// Makes the lines of what belongs to one name.
pub(crate) struct Of<'a> {
    pub(crate) name: &'a str,
}

impl Of<'_> {
    fn line(&self, rank: Rank, attributes: &[Attribute], text: String) -> Line {
        Line {
            of: self.name.to_owned(),
            rank,
            text,
            attributes: noticed(attributes),
            docs: documentation(attributes),
        }
    }

    fn definition(&self, attributes: &[Attribute], text: String) -> Line {
        self.line(Rank::Definition, attributes, text)
    }

    fn part(&self, attributes: &[Attribute], text: String) -> Line {
        self.line(Rank::Part, attributes, text)
    }

    pub(crate) fn function(&self, attributes: &[Attribute], text: String) -> Line {
        self.line(Rank::Function, attributes, text)
    }

    pub(crate) fn implemented(&self, attributes: &[Attribute], text: String) -> Line {
        self.line(Rank::Impl, attributes, text)
    }
}

/// Who implements a trait must write what has no default.
fn trait_item(of: &Of<'_>, item: &TraitItem) -> Option<Line> {
    let kind = |provided: bool| if provided { "provided" } else { "required" };
    let (attributes, text) = match item {
        TraitItem::Fn(item) => {
            let name = format!("{}::{}", of.name, item.sig.ident);
            (
                &item.attrs,
                format!(
                    "{} {}",
                    kind(item.default.is_some()),
                    signature(&item.sig, &name)
                ),
            )
        }
        TraitItem::Type(item) => {
            let bounds = if item.bounds.is_empty() {
                String::new()
            } else {
                format!(": {}", tidy(&item.bounds))
            };
            let (generics, wheres) = generics(&item.generics);
            let text = format!("type {}::{}{generics}{bounds}{wheres}", of.name, item.ident);
            (
                &item.attrs,
                format!("{} {text}", kind(item.default.is_some())),
            )
        }
        TraitItem::Const(item) => {
            let text = format!("const {}::{}: {}", of.name, item.ident, tidy(&item.ty));
            (
                &item.attrs,
                format!("{} {text}", kind(item.default.is_some())),
            )
        }
        other => panic!("there is no line for `{}` of {} yet", tidy(other), of.name),
    };
    is_there(attributes).then(|| of.function(attributes, text))
}

/// A function, by the name that its users write.
pub(crate) fn signature(signature: &Signature, name: &str) -> String {
    let mut start = String::new();
    for (written, word) in [
        (signature.constness.is_some(), "const "),
        (signature.asyncness.is_some(), "async "),
    ] {
        if written {
            start.push_str(word);
        }
    }
    if !signature.safety.to_token_stream().is_empty() {
        start.push_str(&format!("{} ", tidy(&signature.safety)));
    }
    if let Some(abi) = &signature.abi {
        start.push_str(&format!("{} ", tidy(abi)));
    }
    let inputs: Vec<_> = signature.inputs.iter().map(input).collect();
    let output = match &signature.output {
        syn::ReturnType::Default => String::new(),
        output => format!(" {}", tidy(output)),
    };
    let (generics, wheres) = generics(&signature.generics);
    format!(
        "{start}fn {name}{generics}({}){output}{wheres}",
        inputs.join(", ")
    )
}

/// Whether an argument is `mut` is the function's own business.
fn input(input: &FnArg) -> String {
    match input {
        FnArg::Receiver(receiver) if matches!(receiver.kind, ReceiverKind::Value) => {
            "self".to_owned()
        }
        FnArg::Receiver(receiver) => {
            let mut receiver = receiver.clone();
            receiver.attrs.clear();
            receiver.mutability = None;
            tidy(&receiver)
        }
        FnArg::Typed(typed) => {
            let name = match &*typed.pat {
                Pat::Ident(name) => name.ident.to_string(),
                _ => "_".to_owned(),
            };
            format!("{name}: {}", tidy(&typed.ty))
        }
    }
}

/// Generic parameters, and the `where` clause.
pub(crate) fn generics(generics: &Generics) -> (String, String) {
    let wheres = generics.where_clause.as_ref();
    let wheres = wheres.map(|clause| format!(" {}", tidy(clause)));
    (tidy(generics), wheres.unwrap_or_default())
}

fn with_generics(name: &str, of: &Generics) -> String {
    let (generics, wheres) = generics(of);
    format!("{name}{generics}{wheres}")
}

/// The fields of a variant are as public as it is.
fn fields(fields: &Fields) -> String {
    let mut shown: Vec<String> = fields
        .iter()
        .filter(|field| is_there(&field.attrs))
        .map(|field| {
            let name = field.ident.as_ref().map(|name| format!("{name}: "));
            format!("{}{}", name.unwrap_or_default(), tidy(&field.ty))
        })
        .collect();
    match fields {
        Fields::Named(_) => {
            shown.sort();
            format!(" {{ {} }}", shown.join(", "))
        }
        Fields::Unnamed(_) => format!("({})", shown.join(", ")),
        Fields::Unit => String::new(),
    }
}

fn is_public(field: &Field) -> bool {
    matches!(field.vis, Visibility::Public(_)) && is_there(&field.attrs)
}

pub(crate) fn is_there(attributes: &[Attribute]) -> bool {
    !is_hidden(attributes) && !lacks(PUBLISHED, attributes)
}
