"""Holds answers and webhooks of the stand-in against the JSON Schemas written from GitLab's documentation."""

import json
import pathlib
import re
import urllib.parse

import jsonschema

WRITTEN = json.loads((pathlib.Path(__file__).parent / "gitlab_schemas.json").read_text())


def validator(name):
    return jsonschema.Draft202012Validator({"$defs": WRITTEN["$defs"], "$ref": f"#/$defs/{name}"})


VALIDATORS = {name: validator(name) for name in WRITTEN["$defs"]}


def rule_of(method, path):
    for rule in WRITTEN["answers"]:
        if rule.get("method", method) == method and re.search(rule["path"], path):
            return rule
    return None


class Checked:
    """Counts what was checked, and keeps what was wrong."""

    def __init__(self):
        self.counts = {}
        self.wrong = []

    def value(self, name, value, where):
        self.counts[name] = self.counts.get(name, 0) + 1
        for error in VALIDATORS[name].iter_errors(value):
            self.wrong.append(f"{where}: {error.json_path}: {error.message[:200]}")

    def answer(self, response, *_args, **_kwargs):
        """A hook of requests: sees every answer that a client gets."""
        method, path = response.request.method, urllib.parse.urlsplit(response.url).path
        where = f"{method} {path} {response.status_code}"
        if response.status_code == 204 or not response.content:
            return
        body = response.json()
        if response.status_code >= 400:
            return self.value("refusal", body, where)
        rule = rule_of(method, path)
        if rule is None:
            self.wrong.append(f"{where}: no schema is written for it")
        elif rule["is"] is not None:
            for value in body if isinstance(body, list) else [body]:
                self.value(rule["is"], value, where)

    def event(self, body):
        name = {"merge_request": "merge_request_event", "pipeline": "pipeline_event"}.get(body.get("object_kind"))
        if name is None:
            self.wrong.append(f"a webhook of the kind {body.get('object_kind')}: no schema is written for it")
        else:
            self.value(name, body, f"webhook {name}")
