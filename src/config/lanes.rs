//! `order`, `on_dead` and `coalesce`: which events of a destination wait for one another, and what follows from it.

use super::{
    de::Spanned,
    destination_file::{Coalesce, DestinationFile},
    error::{Problem, Problems, Span},
};
use crate::domain::lane::{Lanes, OnDead, Order};

/// How the events of a destination wait for one another. What only makes sense where they do is an error where
/// they do not.
pub(super) fn lanes(file: &DestinationFile, problems: &Problems) -> Option<Lanes> {
    let order = file.order.as_ref().map(|order| order.value).unwrap_or_default();
    let on_dead = file.on_dead.as_ref().map(|on_dead| on_dead.value).unwrap_or_default();
    let coalesce = file.coalesce.as_ref().map(|coalesce| coalesce.value).unwrap_or_default();
    let before = problems.count();
    if order == Order::None {
        let vain = |span: Span, setting: &str| {
            let message =
                format!("`{setting}` does nothing with `order: none`, where no event waits for another");
            let help = format!("leave out `order: none`, or `{setting}`");
            problems.add(Problem::new(span, message).help(help));
        };
        if let Some(Spanned { value: OnDead::Hold, span, .. }) = &file.on_dead {
            vain(*span, "on_dead: hold");
        }
        if let Some(Spanned { value: Coalesce::Latest, span, .. }) = &file.coalesce {
            vain(*span, "coalesce: latest");
        }
    }
    (problems.count() == before).then_some(Lanes { order, on_dead, coalesces: coalesce == Coalesce::Latest })
}
