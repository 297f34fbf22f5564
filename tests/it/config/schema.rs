//! The schema files that editors use are the ones the binary prints.

use std::{fs, path::Path};

use onlynew::config::{catalog, schema};

#[test]
fn the_checked_in_schemas_are_the_types() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = [
        ("jobs.schema.json", schema::json_schema()),
        ("connector.schema.json", schema::connector_json_schema()),
    ];
    for (file, schema) in files {
        let path = root.join(file);
        if std::env::var_os("UPDATE_FIXTURES").is_some() {
            fs::write(&path, &schema).expect("written");
        }
        let checked_in = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            checked_in == schema,
            "{file} is not what the types say; write it anew with\n    UPDATE_FIXTURES=1 cargo test --test it config"
        );
    }
}

#[test]
fn every_key_of_the_schemas_has_a_description() {
    for schema in [schema::json_schema(), schema::connector_json_schema()] {
        let schema: serde_json::Value = serde_json::from_str(&schema).expect("JSON");
        let definitions = schema["$defs"].as_object().expect("definitions").values();
        for definition in definitions.chain([&schema]) {
            assert!(
                definition.get("description").is_some() || definition.get("oneOf").is_some(),
                "{definition:#}"
            );
            for (key, property) in definition["properties"].as_object().into_iter().flatten() {
                assert!(property.get("description").is_some(), "{key}: {property:#}");
            }
        }
    }
}

#[test]
fn the_built_in_connectors_are_good() {
    assert!(catalog::built_in().keys().eq(["github", "stripe"]));
    let nowhere = Path::new("no such folder");
    let list = catalog::connectors(nowhere).unwrap_or_else(|errors| panic!("{errors}"));
    for connector in list {
        assert!(!connector.description.is_empty(), "{}", connector.name);
        let told = connector.streams.iter().all(|stream| !stream.description.is_empty());
        assert!(
            told && connector.inputs.iter().all(|input| !input.description.is_empty()),
            "{}",
            connector.name
        );
    }
}
