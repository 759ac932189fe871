//! The routes, and the responses of errors.

use std::num::NonZeroU32;

use axum::extract::{Path, State};
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, put};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};

use crate::shop::{Order, Shop, ShopError};

/// Returns the routes to place an order (PUT) and to read the stock of an item (GET).
pub fn router(shop: Shop) -> Router {
    Router::new()
        .route("/items/{item_id}", get(item))
        .route("/items/{item_id}/orders/{order_id}", put(order))
        .with_state(shop)
}

#[derive(Deserialize)]
struct Wanted {
    quantity: NonZeroU32,
}

#[derive(Serialize)]
struct Left {
    left: i64,
}

async fn order(
    State(shop): State<Shop>,
    Path((item_id, id)): Path<(i64, i64)>,
    Json(Wanted { quantity }): Json<Wanted>,
) -> Result<(StatusCode, Json<Left>), ShopError> {
    let placed = shop.place(item_id, &Order { id, quantity }).await?;
    let status = if placed.now {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    Ok((status, Json(Left { left: placed.left })))
}

async fn item(State(shop): State<Shop>, Path(item_id): Path<i64>) -> Result<Json<Left>, ShopError> {
    let left = shop.left(item_id).await?;
    Ok(Json(Left { left }))
}

/// The body of a problem (RFC 9457), in the form that `distlock::Error` has.
#[derive(Serialize)]
struct Problem {
    status: u16,
    code: &'static str,
    detail: String,
}

impl IntoResponse for ShopError {
    fn into_response(self) -> Response {
        let (status, code) = match self {
            // 423, 503 or 409, with `Retry-After`, by the feature `axum` of distlock.
            ShopError::Lock(error) => {
                tracing::warn!("{error}");
                return error.into_response();
            }
            ShopError::Stale => (StatusCode::CONFLICT, "stale"),
            ShopError::SoldOut(_) => (StatusCode::CONFLICT, "sold-out"),
            ShopError::OtherOrder(_) => (StatusCode::CONFLICT, "other-order"),
            ShopError::NoSuchItem(_) => (StatusCode::NOT_FOUND, "no-such-item"),
            ShopError::Refused(_) => {
                tracing::error!("{self}");
                (StatusCode::CONFLICT, "refused")
            }
            ShopError::Database(_) => {
                tracing::error!("{self}");
                (StatusCode::SERVICE_UNAVAILABLE, "database")
            }
        };
        let problem = Problem {
            status: status.as_u16(),
            code,
            detail: match self {
                // The texts of these errors are only for the log.
                ShopError::Refused(_) => "the database refuses this order".to_owned(),
                ShopError::Database(_) => "the database cannot be used".to_owned(),
                error => error.to_string(),
            },
        };
        let mut response = (status, Json(problem)).into_response();
        let headers = response.headers_mut();
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        if status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}
