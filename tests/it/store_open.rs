//! Opening a store: made where it is missing, kept where it is not, refused where it is too new.

use onlynew::store::{StoreError, open};

use crate::{
    both,
    support::{
        database::Database,
        pages::{RunningJob, record},
    },
};

both!(
    what_was_stored_is_there_after_the_store_is_opened_again,
    processes_that_open_a_new_database_at_once_all_succeed,
    a_database_of_a_later_release_is_refused,
);

async fn what_was_stored_is_there_after_the_store_is_opened_again(database: Database) {
    let store = database.open().await;
    let job = RunningJob::start(&store, "issues").await;
    job.commit(1, vec![record("1", 1, "a")]).await;
    let before = store.job_view("issues").await.unwrap().unwrap();
    store.close().await;
    let after = database.open().await.job_view("issues").await.unwrap().unwrap();
    assert_eq!(before, after);
    assert_eq!((after.records, after.pending, after.row.uid), (1, 1, job.row.uid));
}

async fn processes_that_open_a_new_database_at_once_all_succeed(database: Database) {
    let opened = (0..4).map(|_| {
        let url = database.url().to_owned();
        tokio::spawn(async move { open(&url).await.unwrap().now().await.unwrap() })
    });
    for opened in opened.collect::<Vec<_>>() {
        opened.await.unwrap();
    }
}

async fn a_database_of_a_later_release_is_refused(database: Database) {
    database.open().await.close().await;
    database
        .tamper(
            "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
             SELECT 999, 'later', TRUE, checksum, 0 FROM _sqlx_migrations WHERE version = 1",
        )
        .await;
    let refused = open(database.url()).await.unwrap_err();
    assert!(matches!(refused, StoreError::Newer { found: 999, known: 2.. }), "{refused}");
}

#[cfg(unix)]
#[tokio::test]
async fn a_sqlite_file_is_readable_by_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;

    let database = Database::sqlite();
    let store = database.open().await;
    RunningJob::start(&store, "issues").await;
    let path = database.url().strip_prefix("sqlite://").unwrap();
    for file in [path.to_owned(), format!("{path}-wal"), format!("{path}-shm")] {
        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
}

#[tokio::test]
async fn a_store_that_cannot_be_opened_is_named_without_its_password() {
    for (url, shown) in [
        ("mysql://me:secret@localhost/x", "mysql://me:"),
        ("postgres://me:secret@localhost:1/x", "postgres://me:"),
        ("sqlite://", "sqlite:"),
        ("sqlite:///no/such/folder/x.db", "/no/such/folder/x.db"),
        ("onlynew.db", "(unreadable)"),
    ] {
        let error = open(url).await.unwrap_err().to_string();
        assert!(error.contains(shown) && !error.contains("secret"), "{url}: {error}");
    }
}
