"""Drives the GitLab stand-in with clients that nobody of this project wrote: python-gitlab, and GitLab's own glab.

Prints a transcript, and holds every answer that python-gitlab got, and every webhook, against gitlab_schemas.json.
"""

import http.server
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time

import gitlab
import requests

from answers import Checked

TOKEN = "clients-token"
PROJECT = "acme/access"
ROOT = pathlib.Path(__file__).resolve().parents[2]
checked = Checked()


def say(text):
    print(text, flush=True)


def must(what, holds, seen=None):
    if not holds:
        raise SystemExit(f"FAILED: {what}: {seen!r}")
    say(f"    {what}")


def until(what, look, seconds=30):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = look()
        if found:
            return found
        time.sleep(0.05)
    raise SystemExit(f"FAILED: {what} did not come about within {seconds} s")


class Hook(http.server.BaseHTTPRequestHandler):
    """Takes the stand-in's webhooks."""

    def do_POST(self):
        checked.event(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_args):
        pass


def start(webhook, repository):
    command = ["cargo", "run", "--quiet", "--bin", "local", "--", "gitlab", "--project", PROJECT, "--token", TOKEN,
               "--repository", repository, "--webhook", webhook]
    standin = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    url = standin.stdout.readline().strip()
    if not url:
        raise SystemExit("FAILED: the stand-in did not start")
    return standin, url


def by_python_gitlab(url):
    say(f"python-gitlab {gitlab.__version__}")
    session = requests.Session()
    session.hooks["response"].append(checked.answer)
    forge = gitlab.Gitlab(url, private_token=TOKEN, session=session, retry_transient_errors=False)
    forge.auth()
    must("knows us", forge.user.username == "muster-bot", forge.user.username)
    must("knows its version", forge.version()[0].startswith("19."), forge.version())
    project = forge.projects.get(PROJECT)
    must("shows the project", (project.id, project.default_branch) == (7, "main"), project.attributes)
    must("shows no webhook's secret", "token" not in project.hooks.list()[0].attributes)

    head = project.branches.get("main").commit["id"]
    make = lambda branch, path, text: project.commits.create(
        {"branch": branch, "start_sha": head, "commit_message": f"Add {path}", "actions": [{"action": "create", "file_path": path, "content": text}]})
    commit = make("round/1", "access/a.json", "{}\n")
    must("makes a branch with one commit", project.branches.get("round/1").commit["id"] == commit.id)
    refused(400, "makes it once", lambda: make("round/1", "access/b.json", "{}\n"))

    # Ended by hand below, so that no slow machine lets it pass too early.
    requests.put(f"{url}/_standin/pipeline", json={"kind": "hang"}).raise_for_status()
    opened = project.mergerequests.create({"source_branch": "round/1", "target_branch": "main", "title": "A round", "labels": ["muster"]})
    must("opens a merge request that is not prepared yet", opened.detailed_merge_status in ("preparing", "unchecked"), opened.detailed_merge_status)
    refused(409, "opens it once", lambda: project.mergerequests.create({"source_branch": "round/1", "target_branch": "main", "title": "Again"}))
    read = lambda: project.mergerequests.get(opened.iid)
    running = until("a running pipeline", lambda: (lambda found: found if found.detailed_merge_status == "ci_still_running" else None)(read()))
    must("finds it in a list", [one.iid for one in project.mergerequests.list(state="opened", labels=["muster"], get_all=True)] == [opened.iid])
    must("sees its pipeline", running.pipelines.list()[0].sha == commit.id)
    must("sees its commits", [one.id for one in running.commits()] == [commit.id])
    refused(409, "merges no other head", lambda: running.merge(sha="0" * 40, merge_when_pipeline_succeeds=True))
    running.merge(sha=commit.id, merge_when_pipeline_succeeds=True)
    must("arms it", read().merge_when_pipeline_succeeds)
    running.cancel_merge_when_pipeline_succeeds()
    must("disarms it", not read().merge_when_pipeline_succeeds)
    running.merge(sha=commit.id, merge_when_pipeline_succeeds=True)
    pipeline = read().head_pipeline["id"]
    requests.put(f"{url}/_standin/pipelines/{pipeline}", json={"status": "success"}).raise_for_status()
    requests.put(f"{url}/_standin/pipeline", json={"kind": "pass", "after_ms": 100}).raise_for_status()
    merged = until("the merge", lambda: (lambda found: found if found.state == "merged" else None)(read()))
    must("is merged when its pipeline has passed", merged.merge_commit_sha == project.branches.get("main").commit["id"])
    refused(405, "merges it once", lambda: merged.merge(sha=commit.id))
    merged.state_event = "close"
    merged.save()
    must("closes nothing that is merged", read().state == "merged")

    make("round/2", "access/c.json", "{}\n")
    second = project.mergerequests.create({"source_branch": "round/2", "target_branch": "main", "title": "Another"})
    second.state_event = "close"
    second.save()
    must("closes", second.state == "closed", second.state)
    second.state_event = "reopen"
    second.save()
    must("reopens", second.state == "opened", second.state)
    until("a checked merge request", lambda: project.mergerequests.get(second.iid).sha)
    project.branches.delete("round/2")
    refused(404, "deletes a branch", lambda: project.branches.get("round/2"))
    second.state_event = "close"
    second.save()
    bad = gitlab.Gitlab(url, private_token="wrong", session=session)
    refused(401, "takes no other token", lambda: bad.projects.get(PROJECT))
    session.get(f"{url}/api/v4/personal_access_tokens/self", headers={"PRIVATE-TOKEN": TOKEN})


def refused(status, what, call):
    try:
        call()
    except gitlab.GitlabError as error:
        must(f"{what} ({status})", error.response_code == status, (error.response_code, error.error_message))
    else:
        raise SystemExit(f"FAILED: {what}: nothing was refused")


def by_glab(url, repository, folder):
    program = subprocess.run(["cargo", "run", "--quiet", "--bin", "local", "--", "glab"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    program = program.stdout.strip()
    # glab reads a remote's host without its port, so the port is told as that of the API alone.
    api_host = url.removeprefix("http://")
    host = api_host.partition(":")[0]
    config = pathlib.Path(folder, "glab")
    config.mkdir()
    lines = ["check_update: false", f"host: {host}", "no_prompt: true", "git_protocol: https", "hosts:",
             f"    {host}:", f"        token: {TOKEN}", "        api_protocol: http", f"        api_host: {api_host}", "        git_protocol: https", ""]
    settings = config / "config.yml"
    settings.write_text("\n".join(lines))
    settings.chmod(0o600)
    keep = ("PATH", "HOME", "LANG")
    environment = {name: os.environ[name] for name in keep if name in os.environ}
    environment |= {"GLAB_CONFIG_DIR": str(config), "NO_COLOR": "1", "GIT_TERMINAL_PROMPT": "0"}
    work = pathlib.Path(folder, "work")

    def git(*words):
        subprocess.run(["git", "-c", "user.name=Alice", "-c", "user.email=alice@example.test", *words], cwd=work, check=True, capture_output=True)

    def glab(*words, fails=False):
        say(f"  $ glab {' '.join(words)}")
        done = subprocess.run([program, *words], cwd=work, env=environment, capture_output=True, text=True, timeout=60)
        for line in (done.stdout + done.stderr).strip().splitlines()[:12]:
            say(f"    | {line}")
        if (done.returncode != 0) != fails:
            raise SystemExit(f"FAILED: glab ended with {done.returncode}")
        return done.stdout + done.stderr

    subprocess.run(["git", "clone", "--quiet", repository, str(work)], check=True)
    git("remote", "set-url", "origin", f"{url}/{PROJECT}.git")
    git("remote", "set-url", "--push", "origin", repository)
    say(subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.strip())
    git("checkout", "--quiet", "-b", "by-glab")
    (work / "by-glab.txt").write_text("glab\n")
    git("add", ".")
    git("commit", "--quiet", "-m", "Add a file")
    git("push", "--quiet", repository, "by-glab")
    glab("api", "version")
    glab("mr", "create", "--source-branch", "by-glab", "--target-branch", "main", "--title", "By glab", "--description", "A cycle", "--yes", "-R", PROJECT)
    listed = glab("mr", "list", "-R", PROJECT)
    must("glab lists it", "By glab" in listed, listed)
    iid = json.loads(subprocess.run([program, "api", "projects/acme%2Faccess/merge_requests?source_branch=by-glab"], cwd=work, env=environment,
                                    capture_output=True, text=True, check=True).stdout)[0]["iid"]
    glab("mr", "view", str(iid), "-R", PROJECT)
    glab("mr", "close", str(iid), "-R", PROJECT)
    glab("mr", "reopen", str(iid), "-R", PROJECT)
    show = lambda: json.loads(subprocess.run([program, "api", f"projects/acme%2Faccess/merge_requests/{iid}"], cwd=work, env=environment,
                                             capture_output=True, text=True, check=True).stdout)
    until("a mergeable merge request", lambda: show()["detailed_merge_status"] == "mergeable")
    glab("mr", "merge", str(iid), "--yes", "--sha", show()["sha"], "-R", PROJECT)
    until("the merge by glab", lambda: show()["state"] == "merged")
    must("glab merged it", True)


def main():
    receiver = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    threading.Thread(target=receiver.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        repository = str(pathlib.Path(folder, "access.git"))
        standin, url = start(f"http://127.0.0.1:{receiver.server_port}/hook", repository)
        try:
            by_python_gitlab(url)
            by_glab(url, repository, folder)
            log = subprocess.run(["git", "--git-dir", repository, "log", "--oneline", "--graph", "main"], capture_output=True, text=True, check=True)
            say("git log of main\n" + log.stdout)
        finally:
            standin.send_signal(signal.SIGINT)
            standin.wait(10)
    for name, count in sorted(checked.counts.items()):
        say(f"checked {count:4} {name}")
    for kind in ("merge_request_event", "pipeline_event", "refusal"):
        must(f"some of the kind {kind} were seen", checked.counts.get(kind))
    if checked.wrong:
        raise SystemExit("FAILED: answers that are not as GitLab documents them:\n" + "\n".join(sorted(set(checked.wrong))))
    say(f"forge-clients: python-gitlab and glab went through a whole cycle; {sum(checked.counts.values())} answers and events are as documented")


if __name__ == "__main__":
    sys.exit(main())
