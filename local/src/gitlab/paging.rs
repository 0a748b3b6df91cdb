//! Pages of a list, with GitLab's headers and `Link`.

use axum::{
    Json,
    http::{HeaderValue, Uri},
    response::{IntoResponse, Response},
};
use serde_json::Value;

use super::params::Call;

/// GitLab answers at most this many items, whatever is asked for.
const MOST: usize = 100;

/// The page of `items` that the call asks for.
pub(crate) fn paged(call: &Call, items: &[Value]) -> Response {
    let asked = |name: &str| call.params.number(name).and_then(|number| usize::try_from(number).ok());
    let per_page = asked("per_page").unwrap_or(20).clamp(1, MOST);
    let page = asked("page").unwrap_or(1).max(1);
    let pages = items.len().div_ceil(per_page).max(1);
    let shown: Vec<&Value> = items.iter().skip((page - 1).saturating_mul(per_page)).take(per_page).collect();
    let mut response = Json(&shown).into_response();
    let next = (page < pages).then(|| page + 1);
    let previous = (page > 1).then(|| (page - 1).min(pages));
    let number = |number: Option<usize>| number.map_or_else(String::new, |number| number.to_string());
    let links: Vec<String> = [("prev", previous), ("next", next), ("first", Some(1)), ("last", Some(pages))]
        .into_iter()
        .filter_map(|(name, page)| page.map(|page| format!("<{}>; rel=\"{name}\"", page_url(call.app.url(), &call.uri, page, per_page))))
        .collect();
    let headers = [
        ("x-page", page.to_string()),
        ("x-per-page", per_page.to_string()),
        ("x-next-page", number(next)),
        ("x-prev-page", number(previous)),
        ("x-total", items.len().to_string()),
        ("x-total-pages", pages.to_string()),
        ("link", links.join(", ")),
    ];
    for (name, value) in headers {
        if let Ok(value) = HeaderValue::from_str(&value) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

fn page_url(base: &str, uri: &Uri, page: usize, per_page: usize) -> String {
    let others = uri.query().unwrap_or_default().split('&').filter(|pair| {
        let name = pair.split('=').next().unwrap_or_default();
        !name.is_empty() && name != "page" && name != "per_page"
    });
    let mut query: Vec<String> = others.map(str::to_owned).collect();
    query.push(format!("page={page}"));
    query.push(format!("per_page={per_page}"));
    format!("{base}{}?{}", uri.path(), query.join("&"))
}
