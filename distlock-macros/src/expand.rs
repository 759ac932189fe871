//! Generates the code of the annotated function.

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{
    Expr, GenericArgument, LitStr, Path, PathArguments, Type, TypeParamBound, parse_quote_spanned,
};

use crate::args::Args;
use crate::captures;
use crate::conditions::OnBusy;
use crate::errors::Errors;
use crate::function::{Boxed, Function, FunctionForm};
use crate::key_fn::{self, map_group};
use crate::lazy;
use crate::request::{key_builder, request, skip};
use crate::template::Template;

/// Expands the attribute. After an error it still emits the item, so that its callers resolve.
pub(crate) fn distributed_lock(args: TokenStream, item: &TokenStream) -> TokenStream {
    try_expand(args, item).unwrap_or_else(|error| {
        let error = error.into_compile_error();
        quote!(#error #item)
    })
}

fn try_expand(args: TokenStream, item: &TokenStream) -> syn::Result<TokenStream> {
    let mut errors = Errors::default();
    let args = Args::parse(args, attribute_span(item), &mut errors);
    let function = Function::parse(item.clone(), &mut errors);
    let plan = function.filter(|_| !args.keys.is_empty()).map(|function| {
        let scope = function.scope();
        let parse = |key| Template::parse(key, &scope, &mut errors);
        let templates: Vec<_> = args.keys.iter().map(parse).collect();
        check_keys(&args.keys, &templates, &mut errors);
        lazy::check(&function, &mut errors);
        let returns_skip = matches!(args.conditions.on_busy, Some(OnBusy::Skip));
        if args.on_error.is_none() || returns_skip {
            check_can_return(&function, returns_skip, &mut errors);
        }
        let on_busy = args.conditions.on_busy.as_ref().and_then(OnBusy::function);
        for (argument, value) in [("on_error", args.on_error.as_ref()), ("on_busy", on_busy)] {
            check_captures(argument, value, &function, &mut errors);
        }
        args.once.check_literal(&function.parameters(), &mut errors);
        if let Some(name) = &args.key_fn {
            key_fn::check(name, &function, &mut errors);
        }
        (templates, function)
    });
    errors.finish()?;
    let Some((templates, function)) = plan else {
        return Err(syn::Error::new(
            attribute_span(item),
            "internal error: expansion failed without a diagnostic; please report this",
        ));
    };
    let is_generic = function.may_be_generic();
    let request = request(&args, &templates, is_generic);
    let request = args.conditions.decide(&args.krate, &request, &skip(&args));
    let lock = LockExpansion {
        krate: &args.krate,
        key_names: function
            .scope()
            .names
            .into_iter()
            .filter(|name| {
                args.mentions(name) || templates.iter().any(|template| template.mentions(name))
            })
            .collect(),
        request,
        output: Output::new(&function),
        on_error: args.on_error.as_ref(),
        on_busy: args.conditions.on_busy.as_ref(),
        probes_success: args.min_hold.is_some() || args.once.is_given(),
    };
    let mut output = expand(&function, &lock);
    if let Some(name) = &args.key_fn {
        let builder =
            |(key, template)| key_builder(&args.krate, &LitStr::value(key), template, is_generic);
        let keys: Vec<_> = args.keys.iter().zip(&templates).map(builder).collect();
        output.extend(key_fn::generate(
            name,
            &function,
            &args.krate,
            &keys,
            args.several_keys,
        ));
    }
    Ok(output)
}

/// Reports a lock that `keys` names twice. Templates with errors are incomplete.
fn check_keys(keys: &[LitStr], templates: &[Template], errors: &mut Errors) {
    if !errors.is_empty() {
        return;
    }
    let names: Vec<String> = templates.iter().map(Template::name).collect();
    for (at, key) in keys.iter().enumerate() {
        if names[..at].contains(&names[at]) {
            errors.push_at(
                key.span(),
                format!("`keys` names the lock {:?} twice: keep one", key.value()),
            );
        }
    }
}

/// Reports the return type `!`, for which the compiler's own message mentions an experimental type.
fn check_can_return(function: &Function, skips_busy: bool, errors: &mut Errors) {
    if let Some(never @ Type::Never(_)) = function.output() {
        let (what, argument) = if skips_busy {
            ("return from a skipped call", "on_busy")
        } else {
            ("return a lock failure", "on_error")
        };
        errors.push_spanned(
            never,
            format!(
                "a function that never returns cannot {what}: handle it with \
                 `{argument} = |error| ...`"
            ),
        );
    }
}

/// Reports a parameter that a closure captures.
fn check_captures(argument: &str, value: Option<&Expr>, function: &Function, errors: &mut Errors) {
    let closure = value.and_then(captures::closure);
    let name = closure.and_then(|closure| captures::find_capture(closure, &function.parameters()));
    if let Some(name) = name {
        errors.push_at(
            name.span(),
            format!(
                "`{argument}` cannot capture `{name}`: the parameters are moved into the body; \
                 build the result from the error only, `|error| ...`, or return a `Result` and \
                 let the caller decide"
            ),
        );
    }
}

/// Returns the attribute's position with the user's hygiene, so that the message does not end in
/// "this error originates in the attribute macro".
fn attribute_span(item: &TokenStream) -> Span {
    let attribute = Span::call_site();
    match item.clone().into_iter().next() {
        Some(token) => token.span().located_at(attribute),
        None => attribute,
    }
}

// Input:
//     #[distributed_lock(key = "inventory:<item_id>", lease = "15s")]
//     pub async fn reserve(db: &Db, item_id: u64) -> Result<Order, AppError> { BODY }
//
// Output:
//     pub async fn reserve(db: &Db, item_id: u64) -> Result<Order, AppError> { LOCKED(BODY) }
//
// Input, written by `#[async_trait]`:
//     fn reserve<'life0>(&'life0 self) -> Pin<Box<dyn Future<Output = T> + Send + 'async_trait>> {
//         Box::pin(async move { BODY })
//     }
//
// Output:
//     fn reserve<'life0>(&'life0 self) -> Pin<Box<dyn Future<Output = T> + Send + 'async_trait>> {
//         Box::pin(async move { LOCKED(BODY) })
//     }
fn expand(function: &Function, lock: &LockExpansion<'_>) -> TokenStream {
    let Function {
        attrs,
        vis,
        sig,
        inner_attrs,
        statements,
        braces,
        form,
    } = function;
    let body = match form {
        FunctionForm::Async => lock.wrap_body(statements, *braces),
        FunctionForm::Boxed(boxed) => {
            let Boxed {
                output: _,
                before,
                parens,
                keywords,
                statements,
                braces,
            } = &**boxed;
            let statements = mark_as_used(statements, &lock.key_names, *braces);
            let locked = lock.wrap_body(&statements, *braces);
            let block = quote_spanned!(*braces=> { #locked });
            let argument = quote_spanned!(*parens=> (#keywords #block));
            quote!(#before #argument)
        }
    };
    let body = quote_spanned!(*braces=> { #(#inner_attrs)* #body });
    quote!(#(#attrs)* #vis #sig #body)
}

/// Returns a span that hides names from the user's code, like a macro, but places errors at
/// `place`. Lints about style are silent there, as in any macro.
fn generated_span(place: Span) -> Span {
    Span::mixed_site().located_at(place)
}

/// Marks the key's parameters as used. `#[async_trait]` binds each parameter again, `let n = n;`,
/// and a binding that only the key mentions would be linted as unused. An attribute that expanded
/// before, such as `#[instrument]`, has put the bindings into a block of its own.
//
// Input: let n = n; let __ret: T = { BODY };
//
// Output: let n = n; let _ = &n; let __ret: T = { BODY };
fn mark_as_used(statements: &TokenStream, names: &[Ident], braces: Span) -> TokenStream {
    let place = generated_span(braces);
    let mut output = TokenStream::new();
    let mut last: Vec<TokenTree> = Vec::new();
    for token in statements.clone() {
        let ends = matches!(&token, TokenTree::Punct(end) if end.as_char() == ';');
        let is_body =
            matches!(last.last(), Some(TokenTree::Punct(equals)) if equals.as_char() == '=');
        output.extend([match &token {
            TokenTree::Group(group) if !is_body => {
                let mark = |inside| mark_as_used(&inside, names, braces);
                TokenTree::Group(map_group(group, mark))
            }
            _ => token.clone(),
        }]);
        if ends {
            if let Some(name) = rebound_name(&last).filter(|name| names.contains(name)) {
                output.extend(quote_spanned!(place=> let _ = &#name;));
            }
            last.clear();
        } else {
            last.push(token);
        }
    }
    output
}

/// Returns the name in `let n = n` or `let mut n = n`.
fn rebound_name(statement: &[TokenTree]) -> Option<&Ident> {
    let [
        before @ ..,
        TokenTree::Ident(to),
        TokenTree::Punct(equals),
        TokenTree::Ident(from),
    ] = statement
    else {
        return None;
    };
    let before: Vec<String> = before.iter().map(ToString::to_string).collect();
    let is_let = before.ends_with(&["let".to_owned()])
        || before.ends_with(&["let".to_owned(), "mut".to_owned()]);
    (is_let && equals.as_char() == '=' && to == from).then_some(to)
}

struct LockExpansion<'a> {
    krate: &'a Path,
    /// The parameters that expressions before the body mention.
    key_names: Vec<Ident>,
    request: TokenStream,
    output: Output,
    on_error: Option<&'a Expr>,
    on_busy: Option<&'a OnBusy>,
    probes_success: bool,
}

impl LockExpansion<'_> {
    // Input: BODY
    //
    // Output:
    //     ::distlock::__private::run(
    //         &mut ::core::marker::PhantomData,
    //         &mut ::core::marker::PhantomData,
    //         { let __request = DECISION; __request },
    //         async move {
    //             if let ::core::option::Option::Some(__returns) =
    //                 ::distlock::__private::returns::<Result<Order, AppError>>()
    //             {
    //                 return __returns;
    //             }
    //             { const _: () = (); BODY }
    //         },
    //         <Result<Order, AppError> as ::distlock::FromLockError>::from_lock_error,
    //         ::distlock::__private::always,
    //         ::core::option::Option::None,
    //     )
    //     .await
    fn wrap_body(&self, statements: &TokenStream, braces: Span) -> TokenStream {
        let krate = self.krate;
        let request = &self.request;
        let place = generated_span(braces);
        let type_hint = self.return_type_hint();
        // Nested, so that imports in the body do not affect the types above it. The braces are the
        // user's, so type errors of the body are those of the plain function. The constant avoids
        // the lint `unused_braces` around a single expression.
        let body = quote_spanned!(place=> const _: () = (); #statements);
        let mut body = Group::new(Delimiter::Brace, body);
        body.set_span(braces);
        let body = quote_spanned!(place=> async move { #type_hint #body });
        let on_error = self.on_error();
        let succeeded = self.succeeded();
        let on_busy = self.on_busy();
        quote_spanned! {place=>
            #krate::__private::run(
                // These must live across the await and be mutable; `run` documents the reason.
                &mut ::core::marker::PhantomData,
                &mut ::core::marker::PhantomData,
                // A separate statement, because the key's borrows must not live across the await.
                // The block hides the name from the body.
                { let __request = #request; __request },
                #body,
                #on_error,
                #succeeded,
                #on_busy
            )
            .await
        }
    }

    /// Returns code that gives the compiler the block's return type, and is never executed. This
    /// form needs no `#[allow]`, which the caller may have forbidden.
    fn return_type_hint(&self) -> TokenStream {
        let Output { ty, place } = &self.output;
        if matches!(ty, Type::Never(_)) {
            // `returns::<!>` is unstable, and there is nothing to infer.
            return TokenStream::new();
        }
        let krate = self.krate;
        quote_spanned! {*place=>
            if let ::core::option::Option::Some(__returns) = #krate::__private::returns::<#ty>() {
                return __returns;
            }
        }
    }

    fn on_error(&self) -> TokenStream {
        let Output { ty, place } = &self.output;
        let krate = self.krate;
        match self.on_error {
            Some(on_error) => {
                let site = generated_span(on_error.span());
                let pointer = self.function_pointer(site);
                quote_spanned!(site=> { let __on_error: #pointer = #on_error; __on_error })
            }
            None if matches!(ty, Type::Infer(_)) => {
                quote_spanned!(*place=> <#ty as #krate::__private::FromLockErrorBehindImpl>::from_lock_error)
            }
            None => {
                quote_spanned!(*place=> <#ty as #krate::FromLockError>::from_lock_error)
            }
        }
    }

    /// Returns the function that a skipped call calls, as an `Option`.
    fn on_busy(&self) -> TokenStream {
        let Output { ty, place } = &self.output;
        let krate = self.krate;
        let (site, on_busy) = match self.on_busy {
            None => {
                let site = generated_span(*place);
                return quote_spanned!(site=> ::core::option::Option::None);
            }
            Some(OnBusy::Function(on_busy)) => {
                (generated_span(on_busy.span()), on_busy.to_token_stream())
            }
            Some(OnBusy::Skip) => {
                let skipped =
                    quote_spanned!(*place=> <#ty as #krate::__private::SkipValue>::skipped);
                (generated_span(*place), skipped)
            }
        };
        let pointer = self.function_pointer(site);
        quote_spanned! {site=>
            ::core::option::Option::Some({ let __on_busy: #pointer = #on_busy; __on_busy })
        }
    }

    /// Returns the type of `on_error` and `on_busy`. It is a function pointer, because a closure
    /// would capture what has moved into the body.
    fn function_pointer(&self, site: Span) -> TokenStream {
        let ty = &self.output.ty;
        let krate = self.krate;
        if matches!(ty, Type::Never(_)) {
            // `!` is stable only after an arrow.
            quote_spanned!(site=> fn(#krate::Error) -> #ty)
        } else {
            // An alias, because after an arrow no lifetime may be omitted.
            quote_spanned!(site=> #krate::__private::OnError<#ty>)
        }
    }

    /// Returns the check for the body's success, on which `min_hold` and success records depend.
    /// `Probe` distinguishes a `Result` from other types by autoref specialization, even through an
    /// alias.
    fn succeeded(&self) -> TokenStream {
        let krate = self.krate;
        let Output { ty, place } = &self.output;
        let site = generated_span(*place);
        // A method cannot be looked up on a type that is still unknown.
        if !self.probes_success || matches!(ty, Type::Never(_)) {
            return quote_spanned!(site=> #krate::__private::always);
        }
        quote_spanned! {site=>
            |__output| {
                use #krate::__private::{ProbeAny as _, ProbeResult as _};
                (&&#krate::__private::Probe(__output)).__distlock_succeeded()
            }
        }
    }
}

/// The return type of the annotated function.
struct Output {
    /// The type, with `_` for each `impl Trait`, which cannot be named.
    ty: Type,
    place: Span,
}

impl Output {
    fn new(function: &Function) -> Output {
        let name = function.sig.ident.span();
        match function.output() {
            None => Output::unit(name),
            // `#[async_trait]` adds a `()` that the user has not written, with its own span.
            Some(Type::Tuple(unit))
                if unit.elems.is_empty() && matches!(function.form, FunctionForm::Boxed(_)) =>
            {
                Output::unit(name)
            }
            Some(output) => {
                let mut ty = output.clone();
                erase_impl_trait(&mut ty);
                Output {
                    place: output.span(),
                    ty,
                }
            }
        }
    }

    /// Returns `()`. Errors about it underline `place`.
    fn unit(place: Span) -> Output {
        Output {
            ty: parse_quote_spanned!(place=> ()),
            place,
        }
    }
}

/// Replaces each `impl Trait` by `_`.
fn erase_impl_trait(ty: &mut Type) {
    match ty {
        // Errors about it underline its first word; only nightly could underline all of it.
        Type::ImplTrait(opaque) => *ty = parse_quote_spanned!(opaque.span()=> _),
        Type::Array(array) => erase_impl_trait(&mut array.elem),
        Type::Group(group) => erase_impl_trait(&mut group.elem),
        Type::Paren(paren) => erase_impl_trait(&mut paren.elem),
        Type::Path(path) => erase_path(&mut path.path),
        Type::Ptr(pointer) => erase_impl_trait(&mut pointer.elem),
        Type::Reference(reference) => erase_impl_trait(&mut reference.elem),
        Type::Slice(slice) => erase_impl_trait(&mut slice.elem),
        Type::TraitObject(object) => {
            for bound in &mut object.bounds {
                if let TypeParamBound::Trait(bound) = bound {
                    erase_path(&mut bound.path);
                }
            }
        }
        Type::Tuple(tuple) => tuple.elems.iter_mut().for_each(erase_impl_trait),
        _ => {}
    }
}

fn erase_path(path: &mut Path) {
    for segment in &mut path.segments {
        let PathArguments::AngleBracketed(angle) = &mut segment.arguments else {
            continue;
        };
        for argument in &mut angle.args {
            match argument {
                GenericArgument::Type(ty) => erase_impl_trait(ty),
                GenericArgument::AssocType(assoc) => erase_impl_trait(&mut assoc.ty),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use syn::parse_quote;

    #[test]
    fn impl_trait_is_erased_wherever_it_is_allowed() {
        let mut ty: Type = parse_quote! {
            Result<(impl A, [impl B; 2], &impl C), Box<dyn Iterator<Item = impl D>>>
        };
        erase_impl_trait(&mut ty);
        let expected: Type = parse_quote!(Result<(_, [_; 2], &_), Box<dyn Iterator<Item = _>>>);
        assert_eq!(
            ty.to_token_stream().to_string(),
            expected.to_token_stream().to_string()
        );
    }
}
