//! What it means: pure folds over the frames of a ledger.
