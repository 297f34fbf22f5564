//! Reading a source
