//! The statements of one connection, which are prepared at their first use.

use std::collections::HashMap;

use parking_lot::Mutex;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, Row, Statement};

use super::Parameter;

/// The prepared statements of one connection, by their text.
#[derive(Default)]
pub(super) struct PreparedStatements(Mutex<HashMap<String, Statement>>);

impl PreparedStatements {
    /// Sends a statement over the connection whose statements these are.
    pub(super) async fn query(
        &self,
        client: &Client,
        text: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>, Error> {
        let known = self.0.lock().get(text).cloned();
        let statement = match known {
            Some(statement) => statement,
            None => {
                let types: Vec<Type> = parameters.iter().map(|(_, of)| of.clone()).collect();
                let statement = client.prepare_typed(text, &types).await?;
                self.0.lock().insert(text.to_owned(), statement.clone());
                statement
            }
        };
        let values: Vec<&(dyn ToSql + Sync)> = parameters.iter().map(|(value, _)| *value).collect();
        client.query(&statement, &values).await
    }
}
