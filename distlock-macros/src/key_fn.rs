//! Generates the function of `key_fn`, which returns the key of a call, or its keys.

use proc_macro2::{Group, Ident, Literal, Span, TokenStream, TokenTree};
use quote::{ToTokens as _, quote, quote_spanned};
use syn::{Attribute, FnArg, Path};

use crate::errors::Errors;
use crate::function::{Function, FunctionForm, bound_names};

/// Reports a function that cannot have one.
pub(crate) fn check(name: &Ident, function: &Function, errors: &mut Errors) {
    if matches!(function.form, FunctionForm::Boxed(_)) {
        errors.push_at(
            name.span(),
            format!(
                "`key_fn` adds a function, and a trait or its impl allows no further one: write `key_fn` on a \
                 function or a method outside of the trait, and call that from `{}`",
                function.sig.ident
            ),
        );
    } else if *name == function.sig.ident {
        errors.push_at(
            name.span(),
            format!("`key_fn` adds a function, and `{name}` is taken: write another name, such as `{name}_key`"),
        );
    }
}

// Input: pub async fn reserve(&self, mut item_id: u64) -> Result<Order, AppError> { BODY }
//
// Output:
//     #[doc = "..."]
//     pub fn reserve_key(&self, item_id: u64) -> Result<String, ::distlock::Error> {
//         let _ = &self;
//         let _ = &item_id;
//         <Self as ::distlock::__private::KeyFnOwner>::check();
//         ::distlock::__private::KeyBuilder....key()
//     }
//
// With `keys`, it returns `Result<[String; 2], ::distlock::Error>`.
/// Returns the function. Its spans are those of a macro, so lints about style and unused code are
/// silent.
pub(crate) fn generate(
    name: &Ident,
    function: &Function,
    krate: &Path,
    keys: &[TokenStream],
    several_keys: bool,
) -> TokenStream {
    let site = Span::mixed_site().located_at(name.span());
    let sig = &function.sig;
    let what = if several_keys {
        "keys, in the order of `keys`,"
    } else {
        "key"
    };
    let docs = format!(
        " Returns the {what} of a call of `{}` with these arguments. Acquires no lock.\n\n # Errors\n\n \
         `distlock::Error::InvalidValue` if a value is empty or too long.",
        sig.ident
    );
    let string = quote_spanned!(site=> ::std::string::String);
    let (output, value) = match keys {
        [key] if !several_keys => (string, quote_spanned!(site=> #key.key())),
        _ => {
            let count = Literal::usize_unsuffixed(keys.len());
            (
                quote_spanned!(site=> [#string; #count]),
                quote_spanned!(site=> ::core::result::Result::Ok([#(#keys.key()?),*])),
            )
        }
    };
    let conditions = cfgs(&function.attrs);
    let vis = function.vis.to_token_stream().into_iter().map(|mut token| {
        token.set_span(site);
        token
    });
    let mut name = name.clone();
    name.set_span(site);
    let mut generics = sig.generics.clone();
    let where_clause = generics.where_clause.take();
    let inputs = sig.inputs.iter().map(input);
    let used = sig.inputs.iter().map(|input| mark_as_used(input, site));
    let check_owner = sig
        .receiver()
        .is_some()
        .then(|| quote_spanned!(site=> <Self as #krate::__private::KeyFnOwner>::check();));
    quote_spanned! {site=>
        #(#conditions)*
        #[doc = #docs]
        #(#vis)* fn #name #generics(#(#inputs),*)
            -> ::core::result::Result<#output, #krate::Error> #where_clause
        {
            #(#used)*
            #check_owner
            #value
        }
    }
}

fn cfgs(attrs: &[Attribute]) -> impl Iterator<Item = &Attribute> {
    attrs.iter().filter(|attr| attr.path().is_ident("cfg"))
}

/// Returns a parameter that is never changed.
fn input(input: &FnArg) -> TokenStream {
    match input {
        FnArg::Receiver(receiver) => {
            let mut receiver = receiver.clone();
            receiver.mutability = None;
            receiver.into_token_stream()
        }
        FnArg::Typed(parameter) => {
            let (attrs, ty) = (&parameter.attrs, &parameter.ty);
            let pattern = without_mut(parameter.pat.to_token_stream());
            quote!(#(#attrs)* #pattern: #ty)
        }
    }
}

/// Removes the `mut` of names from a pattern, but not that of references.
fn without_mut(pattern: TokenStream) -> TokenStream {
    let mut is_reference = false;
    let mut output = TokenStream::new();
    for token in pattern {
        let is_mut = matches!(&token, TokenTree::Ident(word) if word == "mut");
        if !is_mut || is_reference {
            is_reference = match &token {
                TokenTree::Ident(_) => true,
                TokenTree::Punct(sign) => matches!(sign.as_char(), '&' | '*'),
                _ => false,
            };
            output.extend([match token {
                TokenTree::Group(group) => TokenTree::Group(map_group(&group, without_mut)),
                token => token,
            }]);
        }
    }
    output
}

pub(crate) fn map_group(group: &Group, map: impl FnOnce(TokenStream) -> TokenStream) -> Group {
    let mut mapped = Group::new(group.delimiter(), map(group.stream()));
    mapped.set_span(group.span());
    mapped
}

fn mark_as_used(input: &FnArg, site: Span) -> TokenStream {
    match input {
        FnArg::Receiver(receiver) => {
            let this = &receiver.self_token;
            quote_spanned!(site=> let _ = &#this;)
        }
        FnArg::Typed(parameter) => {
            let mut names = Vec::new();
            bound_names(&parameter.pat, &mut names);
            let conditions = cfgs(&parameter.attrs);
            let conditions = quote!(#(#conditions)*);
            quote_spanned!(site=> #(#conditions let _ = &#names;)*)
        }
    }
}
