//! Which builds have a piece of code, by its `cfg` attributes.

use std::ops::Range;

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::parse::{ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{Attribute, Meta, Token};

/// A build, described by the conditions that it does not have. Of all others nothing is known.
pub(crate) type Build = &'static [&'static str];

/// Any build that is not one of its own tests.
pub(crate) const PRODUCT: Build = &["test", "distlock_inside"];

/// The build that users have.
pub(crate) const PUBLISHED: Build = &["test", "distlock_inside", "sabotage"];

/// Whether a build certainly lacks what has these attributes.
pub(crate) fn lacks(build: Build, attributes: &[Attribute]) -> bool {
    attributes
        .iter()
        .filter_map(condition)
        .any(|condition| holds(build, &condition) == Some(false))
}

/// What a `#[cfg(...)]` asks for; `None` for another attribute.
pub(crate) fn condition(attribute: &Attribute) -> Option<Meta> {
    if !attribute.path().is_ident("cfg") {
        return None;
    }
    attribute.parse_args().ok()
}

/// Whether a condition holds in a build, where that is known.
fn holds(build: Build, condition: &Meta) -> Option<bool> {
    match condition {
        Meta::Path(name) => build
            .iter()
            .any(|lacked| name.is_ident(lacked))
            .then_some(false),
        Meta::NameValue(_) => None,
        Meta::List(list) => {
            let parts = list
                .parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated)
                .ok()?;
            let parts: Vec<_> = parts.iter().map(|part| holds(build, part)).collect();
            if list.path.is_ident("not") {
                parts.first().copied().flatten().map(|held| !held)
            } else if list.path.is_ident("all") {
                if parts.contains(&Some(false)) {
                    Some(false)
                } else {
                    parts.iter().all(|part| *part == Some(true)).then_some(true)
                }
            } else if list.path.is_ident("any") {
                if parts.contains(&Some(true)) {
                    Some(true)
                } else {
                    parts
                        .iter()
                        .all(|part| *part == Some(false))
                        .then_some(false)
                }
            } else {
                None
            }
        }
    }
}

/// The attributes in front of a piece of code. They are read from its tokens, for in the syntax tree each kind of item
/// and expression keeps them in a field of its own.
pub(crate) fn attributes_of(code: &impl ToTokens) -> Vec<Attribute> {
    let tokens = code.to_token_stream();
    let starts_with_one = matches!(tokens.clone().into_iter().next(), Some(TokenTree::Punct(punct)) if punct.as_char() == '#');
    if !starts_with_one {
        return Vec::new();
    }
    let parser = |input: ParseStream<'_>| {
        let attributes = input.call(Attribute::parse_outer)?;
        input.parse::<TokenStream>()?;
        Ok(attributes)
    };
    parser.parse2(tokens).unwrap_or_default()
}

/// The passages of a file that a build lacks, in bytes from its start.
pub(crate) fn lacking(build: Build, file: &syn::File) -> Vec<Range<usize>> {
    let mut lacking = Lacking {
        build,
        passages: Vec::new(),
    };
    if lacks(build, &file.attrs) {
        lacking.passages.push(0..usize::MAX);
    }
    lacking.visit_file(file);
    lacking.passages
}

struct Lacking {
    build: Build,
    passages: Vec<Range<usize>>,
}

impl Lacking {
    fn takes(&mut self, code: &impl ToTokens) -> bool {
        let lacks = lacks(self.build, &attributes_of(code));
        if lacks {
            self.passages.extend(extent(code));
        }
        lacks
    }
}

/// From the first byte of some code to its last. What the parser added, such as a comma, stands nowhere.
pub(crate) fn extent(code: &impl ToTokens) -> Option<Range<usize>> {
    code.to_token_stream()
        .into_iter()
        .map(|token| token.span().byte_range())
        .filter(|bytes| !bytes.is_empty())
        .reduce(|all, bytes| all.start.min(bytes.start)..all.end.max(bytes.end))
}

/// Visits what may have a `cfg` of its own, and stops at what the build lacks.
macro_rules! visit_unless_lacking {
    ($($visit:ident: $node:ident,)*) => {
        $(fn $visit(&mut self, code: &'ast syn::$node) {
            if !self.takes(code) {
                visit::$visit(self, code);
            }
        })*
    };
}

impl<'ast> Visit<'ast> for Lacking {
    visit_unless_lacking! {
        visit_item: Item,
        visit_impl_item: ImplItem,
        visit_trait_item: TraitItem,
        visit_foreign_item: ForeignItem,
        visit_field: Field,
        visit_variant: Variant,
        visit_generic_param: GenericParam,
        visit_fn_arg: FnArg,
        visit_stmt: Stmt,
        visit_arm: Arm,
        visit_expr: Expr,
        visit_field_value: FieldValue,
        visit_field_pat: FieldPat,
    }
}
