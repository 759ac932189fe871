//! The verbs of `sql/functions.sql`, as statements with their types.

use tokio_postgres::types::Type;

/// A verb: one statement, which is one transaction.
#[derive(Clone, Copy, Debug)]
pub(super) enum Verb {
    Acquire,
    AcquireAll,
    Confirm,
    Renew,
    Downgrade,
    Release,
    CheckQueues,
    Inspect,
    List,
    Revoke,
    DeleteRecord,
    Sweep,
}

impl Verb {
    pub(super) const COUNT: usize = Self::Sweep as usize + 1;

    /// Returns the statement and the types of its parameters.
    pub(super) fn statement(self) -> (&'static str, &'static [Type]) {
        use Verb::{
            Acquire, AcquireAll, CheckQueues, Confirm, DeleteRecord, Downgrade, Inspect, List,
            Release, Renew, Revoke, Sweep,
        };
        const BOOL: Type = Type::BOOL;
        const CHAR: Type = Type::CHAR;
        const INT: Type = Type::INT4;
        const INTS: Type = Type::INT4_ARRAY;
        const LONG: Type = Type::INT8;
        const LONGS: Type = Type::INT8_ARRAY;
        const TEXT: Type = Type::TEXT;
        const TEXTS: Type = Type::TEXT_ARRAY;
        const UUID: Type = Type::UUID;
        match self {
            Acquire => (
                "SELECT * FROM distlock.acquire($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14,$15,$16,$17)",
                &[
                    TEXT, UUID, LONG, LONG, CHAR, INT, INT, INT, INT, LONG, LONG, LONG, INT, TEXT,
                    TEXT, LONG, LONG,
                ],
            ),
            AcquireAll => (
                "SELECT * FROM distlock.acquire_all($1,$2,$3,$4,$5,$6,$7,$8)",
                &[TEXTS, UUID, LONG, LONGS, INT, LONG, LONG, TEXT],
            ),
            Confirm => (
                "SELECT * FROM distlock.confirm($1,$2,$3,$4,$5,$6)",
                &[TEXT, UUID, LONG, INT, TEXT, LONG],
            ),
            Renew => (
                "SELECT * FROM distlock.renew($1,$2,$3,$4,$5,$6)",
                &[TEXTS, UUID, LONGS, LONGS, INTS, LONG],
            ),
            Downgrade => (
                "SELECT * FROM distlock.downgrade($1,$2,$3,$4,$5,$6)",
                &[TEXT, UUID, LONG, LONG, INT, LONG],
            ),
            Release => (
                "CALL distlock.release($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,true,null,null)",
                &[TEXT, UUID, LONG, INT, LONG, LONG, LONG, TEXT, LONG, LONG],
            ),
            CheckQueues => (
                "SELECT * FROM distlock.check_queue($1,$2,$3,$4,$5)",
                &[UUID, TEXTS, INTS, LONGS, LONG],
            ),
            Inspect => ("SELECT * FROM distlock.inspect($1,$2)", &[TEXT, INT]),
            List => ("SELECT distlock.list($1)", &[TEXT]),
            Revoke => (
                "SELECT * FROM distlock.revoke($1,$2,$3,$4,$5,$6)",
                &[TEXT, UUID, LONGS, BOOL, TEXT, LONG],
            ),
            DeleteRecord => ("SELECT distlock.delete_record($1,$2)", &[TEXT, TEXT]),
            Sweep => ("SELECT distlock.sweep()", &[]),
        }
    }
}
