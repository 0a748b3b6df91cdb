"""Deploys the project's own template.yaml to the local cloud, and asks that for what only an AWS client can.

usage: stack.py COMMAND, one JSON document on standard input, one on standard output; see the functions below.
AWS_ENDPOINT_URL, AWS_DEFAULT_REGION and credentials come from the environment, as for any AWS client.
"""

import concurrent.futures
import datetime
import json
import pathlib
import platform
import sys
import time
import zipfile

import boto3
from samtranslator.translator.transform import transform as sam_transform
from samtranslator.yaml_helper import yaml_parse

CODE_BUCKET = "muster-code"
DEPLOY_LIMIT_S = 60


def transform(wanted):
    """{"template": PATH} -> {"template": the CloudFormation template that AWS would make of it}."""
    return {"template": transformed(wanted["template"])}


def deploy(wanted):
    """{"stack", "template": PATH, "functions": FOLDER of NAME/bootstrap, "parameters": {…}} -> {"outputs": {…}}."""
    names = upload_code(pathlib.Path(wanted["functions"]))
    template = transformed(wanted["template"])
    # The binaries were built here, for this machine.
    architecture = "arm64" if platform.machine() in ("arm64", "aarch64") else "x86_64"
    parameters = {"Architecture": architecture} | wanted["parameters"]
    cloudformation = boto3.client("cloudformation")
    delete_stack(cloudformation, wanted["stack"])  # Left by an earlier run on a cloud that outlives its runs.
    cloudformation.create_stack(
        StackName=wanted["stack"],
        TemplateURL=upload_template(template),  # In the call itself CloudFormation takes 51,200 characters.
        Parameters=[{"ParameterKey": key, "ParameterValue": value} for key, value in parameters.items()],
        Capabilities=["CAPABILITY_IAM", "CAPABILITY_NAMED_IAM"],
    )
    stack = settled_stack(cloudformation, wanted["stack"])
    if stack["StackStatus"] != "CREATE_COMPLETE":
        sys.exit(f"the stack ended {stack['StackStatus']}:\n{failures(cloudformation, wanted['stack'])}")
    outputs = {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}
    return {"outputs": outputs, "functions": names}


def delete(wanted):
    """{"stack"}: deletes the stack if there is one."""
    delete_stack(boto3.client("cloudformation"), wanted["stack"])
    return {}


def forward(wanted):
    """{"functions": {NAME: URL}, "timeout_s"}: calls of these functions go to the URL instead of the deployed code."""
    client = boto3.client("lambda")
    for name, url in wanted["functions"].items():
        variables = client.get_function_configuration(FunctionName=name).get("Environment", {}).get("Variables", {})
        variables["MINISTACK_LAMBDA_PROXY_URL"] = url
        client.update_function_configuration(
            FunctionName=name, Environment={"Variables": variables}, Timeout=wanted["timeout_s"]
        )
    return {}


def variables(wanted):
    """{"functions": [NAME…]} -> {NAME: {VARIABLE: VALUE}}: what the template gives each function."""
    client = boto3.client("lambda")
    return {
        name: client.get_function_configuration(FunctionName=name).get("Environment", {}).get("Variables", {})
        for name in wanted["functions"]
    }


def once(wanted):
    """{"name", "seconds", "function_arn", "role_arn", "input"}: one call of a function, so many seconds from now."""
    at = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=wanted["seconds"])
    boto3.client("scheduler").create_schedule(
        Name=wanted["name"],
        ScheduleExpression=f"at({at:%Y-%m-%dT%H:%M:%S})",
        FlexibleTimeWindow={"Mode": "OFF"},
        ActionAfterCompletion="DELETE",
        Target={"Arn": wanted["function_arn"], "RoleArn": wanted["role_arn"], "Input": wanted["input"]},
    )
    return {}


def logs(wanted):
    """{"functions": [NAME…], "since_ms"} -> {"lines": [{"function", "at_ms", "text"}…]} in order of time."""
    client = boto3.client("logs")
    lines = []
    for name in wanted["functions"]:
        try:
            pages = client.get_paginator("filter_log_events").paginate(
                logGroupName=f"/aws/lambda/{name}", startTime=wanted["since_ms"]
            )
            events = [event for page in pages for event in page["events"]]
        except client.exceptions.ResourceNotFoundException:
            continue  # Never called.
        lines += [{"function": name, "at_ms": event["timestamp"], "text": event["message"]} for event in events]
    return {"lines": sorted(lines, key=lambda line: line["at_ms"])}


def transformed(path):
    template = yaml_parse(pathlib.Path(path).read_text())
    # The transform wants code where it will be at deployment, not where it is now.
    template["Globals"]["Function"].pop("CodeUri", None)
    for resource in template["Resources"].values():
        if resource["Type"] == "AWS::Serverless::Function":
            binary = resource["Metadata"]["BuildProperties"]["Binary"]
            resource["Properties"]["CodeUri"] = f"s3://{CODE_BUCKET}/{binary}.zip"
    return sam_transform(template, {}, NoManagedPolicies())


class NoManagedPolicies:
    """The template names none, so none has to be looked up."""

    def load(self):
        return {}


def upload_code(functions):
    s3 = boto3.client("s3")
    try:
        s3.create_bucket(Bucket=CODE_BUCKET, CreateBucketConfiguration={"LocationConstraint": s3.meta.region_name})
    except (s3.exceptions.BucketAlreadyOwnedByYou, s3.exceptions.BucketAlreadyExists):
        pass
    bootstraps = sorted(functions.glob("*/bootstrap"))

    def upload(bootstrap):
        s3.upload_file(str(zipped(bootstrap)), CODE_BUCKET, f"{bootstrap.parent.name}.zip")
        return bootstrap.parent.name

    with concurrent.futures.ThreadPoolExecutor() as pool:
        return list(pool.map(upload, bootstraps))


def upload_template(template):
    s3 = boto3.client("s3")
    s3.put_object(Bucket=CODE_BUCKET, Key="template.json", Body=json.dumps(template).encode())
    return f"{s3.meta.endpoint_url}/{CODE_BUCKET}/template.json"


def zipped(bootstrap):
    archive = bootstrap.with_name("code.zip")
    if not archive.exists() or archive.stat().st_mtime < bootstrap.stat().st_mtime:
        unfinished = archive.with_suffix(".unfinished")
        with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as zip_file:
            zip_file.write(bootstrap, "bootstrap")
        unfinished.rename(archive)
    return archive


def delete_stack(cloudformation, name):
    until = time.monotonic() + DEPLOY_LIMIT_S
    cloudformation.delete_stack(StackName=name)
    while True:
        try:
            stack = cloudformation.describe_stacks(StackName=name)["Stacks"][0]
        except cloudformation.exceptions.ClientError:
            return  # There is none.
        if stack["StackStatus"] == "DELETE_COMPLETE":
            return
        if stack["StackStatus"] == "DELETE_FAILED" or time.monotonic() > until:
            sys.exit(f"the old stack is {stack['StackStatus']}:\n{failures(cloudformation, name)}")
        time.sleep(0.1)


def settled_stack(cloudformation, name):
    until = time.monotonic() + DEPLOY_LIMIT_S
    while True:
        stack = cloudformation.describe_stacks(StackName=name)["Stacks"][0]
        if not stack["StackStatus"].endswith("IN_PROGRESS"):
            return stack
        if time.monotonic() > until:
            sys.exit(f"the stack is {stack['StackStatus']} after {DEPLOY_LIMIT_S} s")
        time.sleep(0.1)


def failures(cloudformation, name):
    events = cloudformation.describe_stack_events(StackName=name)["StackEvents"]
    return "\n".join(
        f"  {event['LogicalResourceId']}: {event.get('ResourceStatusReason', 'no reason given')}"
        for event in reversed(events)
        if event["ResourceStatus"].endswith("FAILED")
    )


COMMANDS = {command.__name__: command for command in (transform, deploy, delete, forward, variables, once, logs)}

if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in COMMANDS:
        sys.exit(f"usage: stack.py {'|'.join(COMMANDS)} with JSON on standard input")
    json.dump(COMMANDS[sys.argv[1]](json.load(sys.stdin)), sys.stdout)
