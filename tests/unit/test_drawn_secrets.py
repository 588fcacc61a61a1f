"""Command lines and environments as people write them, drawn by a grammar that knows which of their characters are secret: none
of these is shown, and what is beside them is."""

import base64
import json
import os
import random
import shlex
import time

import pytest

from gdbext.access import secrets

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
COUNT = 5000 if os.environ.get("GDBEXT_TEST_LONG") == "1" else 500
OPTIONS = """api-key admin-api-key hf-token token auth-token password redis-password ray-redis-password client-secret
master-key secret-key aws-secret-access-key access-token registry-password ssl-keyfile-password signing-key otp
db-password passphrase bearer-token jwt-secret private-key license-key mqtt-passwd basic-auth-password
ssh-passphrase wandb-api-key nats-token session-token bot-token http-auth webhook-secret sas-token
""".split()
VARIABLES = """HF_TOKEN OPENAI_API_KEY VLLM_API_KEY AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN PGPASSWORD MYSQL_PWD DB_PASSWORD
REDIS_PASSWORD WANDB_API_KEY NGC_API_KEY GITHUB_TOKEN SLACK_BOT_TOKEN SECRET_KEY JWT_SECRET VAULT_TOKEN NPM_TOKEN
HUGGING_FACE_HUB_TOKEN ANTHROPIC_API_KEY LITELLM_MASTER_KEY CLIENT_SECRET SSHPASS KEY_PASSPHRASE DOCKER_PASSWORD
AZURE_CLIENT_SECRET SMTP_PASS ENCRYPTION_KEY MINIO_ROOT_PASSWORD RABBITMQ_DEFAULT_PASS DJANGO_SECRET_KEY LDAP_BIND_PASSWORD
""".split()
FIELDS = "api_key password token secret apiKey auth_token client_secret privateKey accessKey db_password passwd".split()
KEPT = [
    *(["--model", "meta-llama/Llama-3.1-8B-Instruct"], ["--port", "8000"], ["--dtype=bfloat16"], ["--max-num-seqs", "256"]),
    *(["--tensor-parallel-size=2"], ["--host", "0.0.0.0"], ["--max-tokens", "128"], ["--tokenizer", "auto"], ["-v"]),
    *(
        ["--block-size", "16"],
        ["--served-model-name", "chat"],
        ["-m", "vllm.entrypoints.openai.api_server"],
        ["--trust-remote-code"],
    ),
    *(["--kv-transfer-config", '{"kv_connector": "NixlConnector", "kv_role": "kv_both"}'], ["--ssl-keyfile", "/etc/ssl/key.pem"]),
    *(["--dist-init-addr", "10.0.0.7:20000"], ["--log-level", "info"], ["--seed", "7"], ["--stop-token-ids", "1", "2"]),
]
KEPT_VARIABLES = (
    "PATH=/usr/bin:/bin|LANG=C.UTF-8|CUDA_VISIBLE_DEVICES=0,1|MASTER_ADDR=10.0.0.7|TOKENIZERS_PARALLELISM=false".split("|")
)


class Drawn:
    """One command line or environment. `secret`: what must not be shown; `kept`: words that must."""

    def __init__(self, seed):
        self.random, self.secret, self.kept = random.Random(seed), [], []

    def value(self, letters=LETTERS, least=8, most=40):
        """A password or key, of which no part looks like something else."""
        pick = self.random
        found = "Q7" + "".join(pick.choices(letters, k=pick.randint(least, most))) + "z9X"
        self.secret.append(found)
        return found

    def password(self):
        """One that people make up."""
        return self.value(LETTERS + "!#$%^*_+.~", 3, 12)

    def url(self):
        pick = self.random
        scheme = pick.choice("http https postgres postgresql+psycopg2 redis amqp mongodb+srv mysql socks5".split())
        host = pick.choice(["db", "h.example.com:5432", "10.0.0.7:6379", "[::1]:80"])
        return pick.choice(
            (
                lambda: f"{scheme}://{pick.choice(['u', 'svc', '', 'a.b'])}:{self.value(LETTERS + '-_.~!', 3, 20)}@{host}/x",
                lambda: f"https://{host}/v1?sv=1&sig={self.value()}&se=2",
                lambda: f"https://s3.example.com/b/k?X-Amz-Signature={self.value()}",
                lambda: f"https://hooks.slack.com/services/T0000/B0000/{self.value(most=20)}",
                lambda: f"https://discord.com/api/webhooks/12345/{self.value()}",
                lambda: f"https://x-access-token:{self.value()}@github.com/a/b.git",
                lambda: f"https://api.telegram.org/bot12345:{self.value()}/send",
                lambda: f"https://{self.value(LETTERS[26:], 20, 30)}@sentry.example.com/4",
            )
        )()

    def header(self):
        pick = self.random
        return pick.choice(
            (
                lambda: f"Authorization: Bearer {self.value()}",
                lambda: f"authorization: Basic {self.basic()}",
                lambda: f"X-Api-Key: {self.value()}",
                lambda: f"Cookie: sid={self.value()}; theme=dark",
                lambda: f"X-Auth-Token: {self.value()}",
                lambda: f"Proxy-Authorization: Basic {self.basic()}",
            )
        )()

    def basic(self):
        found = base64.b64encode(f"user:{self.value()}".encode()).decode()
        self.secret.append(found)
        return found

    def json(self, depth=2):
        pick, found = self.random, {}
        for _ in range(pick.randint(1, 3)):
            key = pick.choice([*FIELDS, "extra_config", "auth", "nested", "url", "kv_role"])
            if key in found:
                continue
            if key in FIELDS:
                found[key] = self.value()
            elif key == "url":
                found[key] = self.url()
            elif key == "kv_role" or not depth:
                found["kv_role"] = "kv_both"
            else:
                found[key] = self.json(depth - 1)
        return found

    def prompt(self):
        """What a person wrote."""
        pick = self.random
        words = ["You", "are", "Mr", *("".join(pick.choices(LETTERS[:26], k=6)).title() for _ in range(4))]
        self.secret += words[3:]
        return " ".join(words)

    def words(self):
        """The words of an option, of a secret or beside one."""
        pick = self.random
        option = "--" + pick.choice(OPTIONS)
        if pick.random() < 0.3:
            option = option.replace("-", "_").replace("__", "--", 1)
        return pick.choice(
            (
                lambda: [option, self.value()],
                lambda: [f"{option}={self.value()}"],
                lambda: [option, self.password()],
                lambda: ["--api-key", self.value(), self.value()],
                lambda: ["-u", f"user:{self.password()}"],
                lambda: ["--user", f"svc:{self.password()}"],
                lambda: ["-H", self.header()],
                lambda: [f"--header={self.header()}"],
                lambda: ["--proxy", self.url()],
                lambda: [f"--url={self.url()}"],
                lambda: ["--extra", json.dumps(self.json())],
                lambda: ["--extra=" + json.dumps(self.json(), separators=(",", ":"))],
                lambda: ["-e", f"{pick.choice(VARIABLES)}={self.value()}"],
                lambda: ["--env", f"{pick.choice(VARIABLES)}={self.url()}"],
                lambda: ["--set", f"auth.{pick.choice(FIELDS)}={self.value()},image.tag=v1"],
                lambda: ["--otlp-headers", f"api-key={self.value()}"],
                lambda: [f"{pick.choice(VARIABLES)}={self.value()}"],
                lambda: ["sh", "-c", f"{pick.choice(VARIABLES)}={self.value()} exec serve {option} {self.value()}"],
                lambda: ["sh", "-c", f"curl -H {shlex.quote(self.header())} http://h"],
                lambda: ["--system-prompt", self.prompt()],
                lambda: ["--default-chat-template-kwargs", json.dumps({"system_prompt": self.prompt()})],
                lambda: ["sk-" + self.value()],
                lambda: ["--x", "hf_" + self.value()],
                lambda: ["--webhook", self.url()],
            )
        )()

    def line(self):
        """A command line: words."""
        pick, found = self.random, ["/usr/bin/python3"]
        for _ in range(pick.randint(1, 6)):
            if pick.random() < 0.5:
                words = pick.choice(KEPT)
                self.kept += words
            else:
                words = self.words()
            found += words
        return found

    def environment(self):
        """NAME=VALUE strings."""
        pick, found = self.random, []
        for _ in range(pick.randint(1, 6)):
            name = pick.choice(VARIABLES)
            found.append(
                pick.choice(
                    (
                        lambda: f"{name}={self.value()}",
                        lambda: f"{name}={self.password()}",
                        lambda: f"DATABASE_URL={self.url()}",
                        lambda: f"HTTPS_PROXY={self.url()}",
                        lambda: f"EXTRA={json.dumps(self.json())}",
                        lambda: f"CONF=api_key: {self.value()}\nport: 80\npassword: {self.value()}\n",
                        lambda: f"INI=[default]\naws_secret_access_key = {self.value()}\n",
                        lambda: f"NETRC=machine h login u password {self.value()}",
                        lambda: f"HEADERS={self.header()}",
                        lambda: f"PEM=-----BEGIN PRIVATE KEY-----\n{self.value()}\n-----END PRIVATE KEY-----\n",
                        lambda: f"DSN=host=db user=u password={self.password()} port=1",
                        lambda: f"JDBC=jdbc:mysql://h/x?user=a&password={self.value()}",
                        lambda: f"ADO=Server=x;User Id=sa;Password={self.value()};",
                    )
                )()
            )
            if pick.random() < 0.5:
                self.kept.append(pick.choice(KEPT_VARIABLES))
                found.append(self.kept[-1])
        return found

    def left(self, said):
        """The secrets of which five characters in a row are still said."""
        return [one for one in self.secret if any(one[at : at + 5] in said for at in range(max(len(one) - 4, 1)))]


@pytest.mark.parametrize("seed", range(3))
def test_no_drawn_command_line_shows_a_secret(seed):
    for number in range(COUNT // 3):
        drawn = Drawn(f"{seed} {number}")
        words = drawn.line()
        said = secrets.shown(words)
        assert not drawn.left(said), (words, said, drawn.left(said))
        assert all(word in said for word in drawn.kept), (words, said)


WAYS = {  # in which a command line stands in another text
    "shell": lambda words: secrets.shown(["sh", "-c", shlex.join(words)]),
    "JSON": lambda words: secrets.shown(["x", "--args", json.dumps(words)]),
    "repr": lambda words: secrets.shown([repr({"cmd": words})]),
    "title": lambda words: secrets.shown([" ".join(words)]),
    "lines": lambda words: secrets.shown(["\n".join(words)]),
}


@pytest.mark.parametrize("way", WAYS)
def test_no_text_with_a_drawn_command_line_shows_a_secret(way):
    for number in range(COUNT // 10):
        drawn = Drawn(f"{way} {number}")
        words = drawn.line()
        said = WAYS[way](words)
        assert not drawn.left(said), (words, said, drawn.left(said))


@pytest.mark.parametrize("seed", range(3))
def test_no_drawn_environment_shows_a_secret(seed):
    for number in range(COUNT // 3):
        drawn = Drawn(f"{seed} of environments {number}")
        for pair in drawn.environment():
            name, _, value = pair.partition("=")
            said = "***" if secrets.is_secret_name(name) else secrets.hidden(value)
            assert not drawn.left(said), (pair, said, drawn.left(said))
            assert pair not in drawn.kept or said == value


@pytest.mark.parametrize("seed", range(3))
def test_no_drawn_secret_is_left_in_a_snapshot(seed):
    for number in range(COUNT // 3):
        drawn = Drawn(f"{seed} of copies {number}")
        words, pairs = drawn.line(), drawn.environment()
        prompts = {one for one in drawn.secret if one.isalpha() and one.istitle()}  # memory of an engine has those anyway
        sure, perhaps = secrets.values(map(os.fsencode, words), map(os.fsencode, pairs))
        for one in set(drawn.secret) - prompts:
            data = one.encode()
            assert any(data in value or value in data and len(value) >= len(data) - 3 for value in sure | perhaps), (
                one,
                words,
                pairs,
            )


PIECES = [
    *(
        "a- x-token- - cookie=a=b; ;c=d password eyJ- :// sk- key_ aB token= a= \" ' \\ { [ : = @ / ? & . _ A1 === \n \t".split(
            " "
        )
    ),
    *("machine login -u --api-key hooks/ webhook= https:// u:p@ sshpass %40 AKIA hf_ eyJhbGciOiJ. bot1: 1: , ; \0".split(" ")),
    *(
        "bearer ",
        "Authorization: ",
        "-----BEGIN ",
        "PRIVATE KEY-----",
        "-H ",
        "--system-prompt ",
        'name":"',
        'value":"',
        " ",
        "ä",
    ),
]


def test_no_text_of_repeated_pieces_takes_more_than_linear_time():
    """By this thread's CPU time, against a plain text of the same length; four times the text takes about four times as long."""
    chance = random.Random(16)

    def cost(piece, size):
        text, began = (piece * (size // len(piece) + 1))[:size], time.thread_time()
        secrets.hidden(text)
        secrets.shown([text])
        return time.thread_time() - began

    for _ in range(3 * COUNT // 50):
        piece = "".join(chance.choices(PIECES, k=chance.randint(1, 5)))
        if cost(piece, 1 << 14) > 30 * cost("model=x ", 1 << 14):  # it may have been the machine
            small, large = (min(cost(piece, size) for _ in range(3)) for size in (1 << 12, 1 << 14))
            assert large < 8 * small, piece
