//! The OpenAPI document, checked against the API.

use serde_json::Value as Json;

use crate::http::common::plain;
use crate::serve::clients::Answer;

/// Validates a value by the parts of JSON Schema that the document uses.
fn fits(root: &Json, schema: &Json, value: &Json) -> Result<(), String> {
    let mismatch = |why: &str| Err(format!("{why}: {value} by {schema}"));
    if let Some(reference) = schema["$ref"].as_str() {
        let reference = root.pointer(reference.strip_prefix('#').unwrap());
        return fits(root, reference.ok_or_else(|| format!("no {schema}"))?, value);
    }
    for (word, max) in [("oneOf", 1), ("anyOf", usize::MAX)] {
        if let Some(forms) = schema[word].as_array() {
            let fitting = forms.iter().filter(|form| fits(root, form, value).is_ok()).count();
            let fits = (1..=max).contains(&fitting);
            return if fits { Ok(()) } else { mismatch("fits none, or too many") };
        }
    }
    if let Some(known) = schema["enum"].as_array() {
        return if known.contains(value) { Ok(()) } else { mismatch("not one of these") };
    }
    let types: Vec<&str> = match &schema["type"] {
        Json::String(one) => vec![one],
        Json::Array(several) => several.iter().map(|one| one.as_str().unwrap()).collect(),
        _ => return mismatch("a schema without a type"),
    };
    let own = match value {
        Json::Null => "null",
        Json::Bool(_) => "boolean",
        Json::Number(number) if number.is_i64() || number.is_u64() => "integer",
        Json::Number(_) => "number",
        Json::String(_) => "string",
        Json::Array(_) => "array",
        Json::Object(_) => "object",
    };
    if !types.contains(&own) {
        return mismatch("another type");
    }
    if let (Some(min), Some(number)) = (schema["minimum"].as_i64(), value.as_i64())
        && number < min
    {
        return mismatch("too small");
    }
    for item in value.as_array().into_iter().flatten() {
        if !schema["items"].is_null() {
            fits(root, &schema["items"], item)?;
        }
    }
    let Some(members) = value.as_object() else { return Ok(()) };
    for required in schema["required"].as_array().into_iter().flatten() {
        if !members.contains_key(required.as_str().unwrap()) {
            return mismatch("a member is missing");
        }
    }
    for (name, member) in members {
        match (schema["properties"].get(name), &schema["additionalProperties"]) {
            (Some(schema), _) => fits(root, schema, member)?,
            (None, Json::Bool(false)) => return mismatch(&format!("unknown member {name}")),
            (None, Json::Object(_)) => fits(root, &schema["additionalProperties"], member)?,
            (None, _) => {}
        }
    }
    Ok(())
}

fn schema_of<'a>(document: &'a Json, operation: &'a Json, answer: &Answer) -> Option<&'a Json> {
    let mut response = &operation["responses"][answer.status.to_string()];
    assert!(!response.is_null(), "undocumented status: {answer:?}");
    if let Some(reference) = response["$ref"].as_str() {
        response = document.pointer(reference.strip_prefix('#').unwrap()).unwrap();
    }
    let content = response["content"].as_object()?;
    Some(&content[answer.field("content-type")]["schema"])
}

#[test]
fn every_path_answers_and_every_example_is_one() {
    let service = plain();
    let document = service.get("/openapi.json");
    assert_eq!((document.status, document.field("content-type")), (200, "application/json"));
    let document = document.json();
    let (mut examples, mut others) = (0, 0);
    for (path, operations) in document["paths"].as_object().unwrap() {
        // The others are answered by the service as a whole.
        let own = "/v1/check /v1/auth /healthz /health /healthcheck /readyz /openapi.json";
        if !own.split(' ').any(|own| own == path) {
            others += 1;
            continue;
        }
        for (method, operation) in operations.as_object().unwrap() {
            let method = method.to_uppercase();
            if method == "GET" {
                let parameters = operation["parameters"].as_array().into_iter().flatten();
                let query = parameters.filter_map(|parameter| {
                    let name = parameter["name"].as_str().unwrap();
                    parameter["example"].as_str().map(|example| format!("{name}={example}"))
                });
                let uri = format!("{path}?{}", query.collect::<Vec<_>>().join("&"));
                let answer = service.call(&method, &uri, &[], "");
                assert!((200..300).contains(&answer.status), "{uri}: {answer:?}");
                schema_of(&document, operation, &answer);
                continue;
            }
            let content = &operation["requestBody"]["content"]["application/json"];
            for (name, example) in content["examples"].as_object().unwrap() {
                let value = &example["value"];
                fits(&document, &content["schema"], value).unwrap();
                let answer = service.call(&method, path, &[], &value.to_string());
                assert_eq!(answer.status, 200, "{path} {name}: {answer:?}");
                let schema = schema_of(&document, operation, &answer).unwrap();
                fits(&document, schema, &answer.json()).unwrap();
                examples += 1;
            }
        }
    }
    assert_eq!((examples, others), (19, if cfg!(feature = "dashboard") { 10 } else { 9 }));
}

#[test]
fn problems_and_denials_are_as_documented() {
    let service = plain();
    let document = service.get("/openapi.json").json();
    let operation = &document["paths"]["/v1/check"]["post"];
    let bodies = [
        ("/v1/check", "{"),
        ("/v1/check", r#"{"rule":"none"}"#),
        ("/v1/check", r#"{"rule":"per_user"}"#),
        ("/v1/check?status=429", r#"{"rule":"per_user","key":"1","permits":4}"#),
        ("/v1/check?status=429", r#"{"rule":"closed","key":"1"}"#),
        ("/v1/check", r#"{"rule":"per_user","key":"1","permits":4}"#),
        ("/v1/check", r#"{"rule":"shadow","key":"1","permits":2}"#),
        ("/v1/check", r#"{"domain":"x","descriptor":{"a":"b"}}"#),
    ];
    for (uri, body) in bodies {
        let answer = service.post(uri, body);
        let schema = schema_of(&document, operation, &answer).unwrap();
        fits(&document, schema, &answer.json()).unwrap();
    }
    assert!(fits(&document, &document["components"]["schemas"]["Checked"], &Json::Null).is_err());
}
