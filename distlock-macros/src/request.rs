//! Generates the code that builds the keys and the request of a call.

use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::quote_spanned;
use syn::spanned::Spanned as _;
use syn::{LitStr, Path};

use crate::args::Args;
use crate::conditions::OnBusy;
use crate::duration::Time;
use crate::template::{Part, Template};
use crate::value;

// Input: "{tenant:<tenant>}:<from>-<to>", lease = "15s"
//
// Output:
//     ::distlock::__private::LockedCall::new(
//         ::distlock::__private::KeyBuilder::new("{tenant:<tenant>}:<from>-<to>", 512usize)
//             .literal("{tenant:")
//             .value("tenant", ::distlock::__private::KeyValue::display(&tenant))
//             .literal("}:")
//             .value_before("from", ::distlock::__private::KeyValue::display(&from), '-')
//             .literal("-")
//             .value("to", ::distlock::__private::KeyValue::display(&to)),
//     )
//     .lease(::core::time::Duration::from_millis(15000u64))
//
// Further keys follow as `.and(::distlock::__private::KeyBuilder..., "LABEL")`, where the label has
// all templates.
//
// `is_generic` means that a value may have a type parameter's type. `KeyValue` is then omitted, so
// that the compiler reports the missing bound as `Display`. For a known type, `KeyValue` explains
// more.
pub(crate) fn request(args: &Args, templates: &[Template], is_generic: bool) -> TokenStream {
    let krate = &args.krate;
    let site = Span::mixed_site();
    let label = templates_text(args);
    let mut builders = args
        .keys
        .iter()
        .zip(templates)
        .map(|(text, template)| key_builder(krate, &text.value(), template, is_generic));
    let first = builders.next();
    let more = builders.map(|builder| quote_spanned!(site=> .and(#builder, #label)));
    let options = [
        ("lease", &args.lease),
        ("wait", &args.wait),
        ("max_hold", &args.max_hold),
        ("min_hold", &args.min_hold),
        ("once_per", &args.once.per),
        ("record_ttl", &args.once.record_ttl),
    ];
    let options = options.iter().filter_map(|(name, time)| {
        let duration = quote_spanned!(site=> ::core::time::Duration);
        let time = match time.as_ref()? {
            Time::Millis(millis) => {
                let millis = Literal::u64_suffixed(*millis);
                quote_spanned!(site=> #duration::from_millis(#millis))
            }
            Time::Expr(expr) => value::typed(expr, &duration),
        };
        let name = Ident::new(name, site);
        Some(quote_spanned!(site=> .#name(#time)))
    });
    let once_for = args.once.value_call(krate, is_generic);
    let on_busy = args.conditions.on_busy.iter().map(|on_busy| match on_busy {
        OnBusy::Skip => quote_spanned!(site=> .skip_busy()),
        OnBusy::Function(_) => quote_spanned!(site=> .replace_busy()),
    });
    let min_replicas = args
        .min_replicas
        .iter()
        .map(|n| quote_spanned!(site=> .min_replicas(#n)));
    let kind = args.kind.call();
    let finish = args
        .finish_on_loss
        .then(|| quote_spanned!(site=> .finish_on_loss()));
    let manager = args.manager.iter().map(|manager| {
        let place = manager.span();
        let manager = quote_spanned!(place=> #krate::AsLockManager::as_lock_manager(&(#manager)));
        quote_spanned!(site=> .manager(#manager))
    });
    let label = args
        .label
        .iter()
        .map(|label| quote_spanned!(site=> .label(#label)));
    let metadata = args.metadata.iter().map(|text| {
        let place = Span::mixed_site().located_at(text.span());
        let text = quote_spanned!(place=> #krate::__private::MetadataText::into_text(#text));
        quote_spanned!(site=> .metadata(#text))
    });
    quote_spanned! {site=>
        #krate::__private::LockedCall::new(#first) #(#more)*
        #(#options)* #once_for #(#on_busy)* #(#min_replicas)* #kind #finish #(#manager)* #(#label)* #(#metadata)*
    }
}

// Output, for "inventory:<item_id>", label = "reservations":
//     { template: "inventory:<item_id>", label: "reservations", kind: ::distlock::HoldKind::Mutex }
/// Returns the description of a skipped call. Its key is not built.
pub(crate) fn skip(args: &Args) -> TokenStream {
    let krate = &args.krate;
    let template = templates_text(args);
    let label = args
        .label
        .as_ref()
        .map_or_else(|| template.clone(), LitStr::value);
    let kind = args.kind.hold_kind();
    quote_spanned! {Span::mixed_site()=>
        { template: #template, label: #label, kind: #krate::HoldKind::#kind }
    }
}

/// Returns all templates as one text, which names the function in logs and metrics.
fn templates_text(args: &Args) -> String {
    let texts: Vec<String> = args.keys.iter().map(LitStr::value).collect();
    texts.join(", ")
}

/// Returns the code that builds one key.
pub(crate) fn key_builder(
    krate: &Path,
    text: &str,
    template: &Template,
    is_generic: bool,
) -> TokenStream {
    let site = Span::mixed_site();
    let capacity = template.capacity;
    let parts = template.parts.iter().map(|part| match part {
        Part::Literal(text) => quote_spanned!(site=> .literal(#text)),
        Part::Value {
            placeholder,
            expr,
            end,
        } => {
            // A call by path, because a trait bound in a signature would add a note that shows the
            // crate's source to every "is not `Display`".
            let place = Span::mixed_site().located_at(expr.span());
            let display = if is_generic {
                expr.clone()
            } else {
                quote_spanned!(place=> #krate::__private::KeyValue::display(#expr))
            };
            match end {
                None => quote_spanned!(site=> .value(#placeholder, #display)),
                Some(end) => quote_spanned!(site=> .value_before(#placeholder, #display, #end)),
            }
        }
    });
    quote_spanned!(site=> #krate::__private::KeyBuilder::new(#text, #capacity) #(#parts)*)
}
