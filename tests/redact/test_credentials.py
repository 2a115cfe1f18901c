"""A secret under its name or in its place within a text is taken out; what surrounds it, and ordinary code, stays."""

from __future__ import annotations

import ast
import sysconfig
from pathlib import Path

import pytest

from autotrace.redact.credentials import REDACTED, without_credentials

SECRET = "cAnArY/0123456789+abcdefXYZ"
TOKEN = "Zx9aB7" * 6
R = REDACTED


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("redis://:§@h:6379/0", f"redis://:{R}@h:6379/0"),
        ("https://§@github.com/a", f"https://{R}@github.com/a"),
        ("https://§:x-oauth-basic@github.com/a", f"https://{R}@github.com/a"),
        ("postgresql+psycopg://bob:§@h/db", f"postgresql+psycopg://bob:{R}@h/db"),
        ("cannot reach amqp://bob:p@ss@h, giving up", f"cannot reach amqp://bob:{R}@h, giving up"),
        ("Authorization: Basic §=", f"Authorization: {R}"),
        ("Authorization: Bearer §", f"Authorization: {R}"),
        ("authorization: token §", f"authorization: {R}"),
        ("Authorization: AWS4-HMAC-SHA256 Credential=a/b, Signature=§\nX: 1", f"Authorization: {R}\nX: 1"),
        ("curl -H 'x-api-key: §' x", f"curl -H 'x-api-key: {R}' x"),
        ("Cookie: a=1; session=§\r\nAccept: */*", f"Cookie: {R}\r\nAccept: */*"),
        ("curl -u bob:§ http://x", f"curl -u bob:{R} http://x"),
        ("export X_KEY=§", f"export X_KEY={R}"),
        ("export X_KEY=hunter; run", f"export X_KEY={R}; run"),
        ("AWS_SECRET_ACCESS_KEY=§\nHOME=/root", f"AWS_SECRET_ACCESS_KEY={R}\nHOME=/root"),
        ("password: hunter", f"password: {R}"),
        ("db:\n  password: hunter2\n  user: bob", f"db:\n  password: {R}\n  user: bob"),
        ("host=h user=bob password=hunter port=1", f"host=h user=bob password={R} port=1"),
        ("mysql --password § -h x", f"mysql --password {R} -h x"),
        ("login --api-key=§ now", f"login --api-key={R} now"),
        ("Client(api_key='§', timeout=3)", f"Client(api_key='{R}', timeout=3)"),
        ("{'Authorization': b'Basic §'}", f"{{'Authorization': b'{R}'}}"),
        ("[('x-api-key', '§'), ('accept', '*/*')]", f"[('x-api-key', '{R}'), ('accept', '*/*')]"),
        ('["run", "--password", "§"]', f'["run", "--password", "{R}"]'),
        ('{"name": "api_key", "value": "§"}', f'{{"name": "api_key", "value": "{R}"}}'),
        ('{"value": "§", "name": "api_key"}', f'{{"value": "{R}", "name": "api_key"}}'),
        ('{"pass": "§", "pw": "§"}', f'{{"pass": "{R}", "pw": "{R}"}}'),
        ('{"password": "a\\"§", "x": 1}', f'{{"password": "{R}", "x": 1}}'),
        ('"{\\"a_secret\\": \\"a §\\", \\"q\\": 1}"', f'"{{\\"a_secret\\": \\"{R}\\", \\"q\\": 1}}"'),
        ('{"password": "§, cut of', f'{{"password": "{R}'),
        ("https://h/v1?a=1&api_key=§&z=3", f"https://h/v1?a=1&api_key={R}&z=3"),
        ("é ü password: §\nü", f"é ü password: {R}\nü"),
        ("<user><password>§</password></user>", f"<user><password>{R}</password></user>"),
        ("<db:Password type='x'> § </db:Password>", f"<db:Password type='x'> {R} </db:Password>"),
        ("<apiKey><![CDATA[§]]></apiKey>", f"<apiKey><![CDATA[{R}]]></apiKey>"),
        (":password => '§'", f":password => '{R}'"),
        ("password: |\n  §\n  more\nuser: x", f"password: |\n  {R}\nuser: x"),
        ("db:\n  - secret: >-\n      §\n\n      more\n    user: x", f"db:\n  - secret: >-\n      {R}\n    user: x"),
        ("machine h login u password §\nmachine i", f"machine h login u password {R}\nmachine i"),
        ("machine h\n  login u\n  password §", f"machine h\n  login u\n  password {R}"),
        ("default login u password §", f"default login u password {R}"),
        ("https://h/v1?key=§&z=3", f"https://h/v1?key={R}&z=3"),
        ("https://h/b?sv=1&sig=§", f"https://h/b?sv=1&sig={R}"),
        ("https://h/b?a=b&amp;X-Amz-Signature=§&amp;c", f"https://h/b?a=b&amp;X-Amz-Signature={R}&amp;c"),
        ("https://h/v1?token=hunter", f"https://h/v1?token={R}"),
        ("mysql -u root -p§ db", f"mysql -u root -p{R} db"),
        ("/usr/bin/mysqldump -uroot '-hx' -p'§' db", f"/usr/bin/mysqldump -uroot '-hx' -p{R} db"),
        ("sshpass -p § ssh u@h", f"sshpass -p {R} ssh u@h"),
        ("sshpass -v -p'§' ssh", f"sshpass -v -p{R} ssh"),
        ('password: str = "§"', f'password: str = "{R}"'),
        ("api_key: Optional[str] = '§', x=1", f"api_key: Optional[str] = '{R}', x=1"),
        ('def f(auth_token: bytes | None = b"§"):', f'def f(auth_token: bytes | None = b"{R}"):'),
        ('const apiKey: string = "§";', f'const apiKey: string = "{R}";'),
        ('let password: &str = "§";', f'let password: &str = "{R}";'),
        ('api_key: SecretStr = SecretStr("§")', f'api_key: SecretStr = SecretStr("{R}")'),
        ("password: str = Field(default='§')", f"password: str = Field(default='{R}')"),
        ('password := "§"', f'password := "{R}"'),
        ('apiKey := "§"', f'apiKey := "{R}"'),
        ("apiKey := `§`", f"apiKey := `{R}`"),
        ('var dbPassword string = "§"', f'var dbPassword string = "{R}"'),
        ('password = f"§"', f'password = f"{R}"'),
        ('password = f"{user}-§"', f'password = f"{R}"'),
        ('api_key = """§""", x=1', f'api_key = """{R}""", x=1'),
        ("SECRET = rb'''\n§\n'''", f"SECRET = rb'''{R}'''"),
        ('os.environ.get("X_KEY", "§")', f'os.environ.get("X_KEY", "{R}")'),
        ('os.environ.get("API_KEY", "default-secret")', f'os.environ.get("API_KEY", "{R}")'),
        ('os.getenv("DB_PASSWORD", default="§")', f'os.getenv("DB_PASSWORD", default="{R}")'),
        ('os.environ["API_KEY"] = "§"', f'os.environ["API_KEY"] = "{R}"'),
        ("os.environ.get('API_KEY') or '§'", f"os.environ.get('API_KEY') or '{R}'"),
        ('process.env.API_KEY || "§"', f'process.env.API_KEY || "{R}"'),
        ("the password is hunter2, so log in", f"the password is {R}, so log in"),
        ('The API key for the staging cluster is "hunter2-a".', f'The API key for the staging cluster is "{R}".'),
        ("log in as bob with password `hunter2`", f"log in as bob with password `{R}`"),
        ("My passphrase's hunter2.", f"My passphrase's {R}."),
        ("ALTER USER bob WITH PASSWORD '§';", f"ALTER USER bob WITH PASSWORD '{R}';"),
        ("create user bob identified by '§'", f"create user bob identified by '{R}'"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("before", ["", "word " * 300])
def test_secrets(text: str, expected: str, before: str) -> None:
    text = text.replace("§", TOKEN if "://" in text else SECRET)
    before = before and before + "\n"
    assert without_credentials(before + text) == before + expected


@pytest.mark.parametrize(
    "text",
    [
        "see https://medium.com/@user or write to a@b.c",
        "http://localhost:8000?email=a@b.c",
        "git clone ssh://git@github.com/a/b",
        "connect(api_key=settings.api_key, token=token)",
        "def f(password: str, token: Optional[str] = None) -> None:",
        "password = getpass()\nself.token = token",
        "if cookie == 0 and secret != b'':",
        "token: hello, next_token=5, max_tokens=100, token_ids: [1, 2]",
        'api_key = os.environ["OPENAI_API_KEY"]',
        "export OPENAI_API_KEY=$KEY",
        'headers = {"Authorization": f"Bearer {key}"}',
        "the key: value store passes; all tests pass: 3",
        "Enter your password:\n",
        "a basic understanding of bearer bonds, the author, a monkey and a passenger",
        "<password>string</password><label>Password</label><forgot_password>Forgot it?</forgot_password>",
        "<token>5</token> a < password and password > b",
        "description: |\n  how to set a password\npassword: |\n",
        "the default password is set on the machine, and the machine password is not",
        'password: str = Field(..., description="of the user"), api_key: str = "OPENAI_API_KEY", token: str = ""',
        'def f(password: str, mode: str = "overwrite", key: bytes = b"1") -> None:',
        "password := getPassword(); token := next",
        "ALTER USER bob WITH PASSWORD NULL; the user name 'bob', password 'is'",
        "https://h/s?key=name&sig=1 and f?key={key}&sig=$sig",
        "mysql -u root -p db; mkdir -p mysql; mysql -p$PASSWORD; sshpass -p $P ssh -p 22 h; ssh -p 2222 h",
        "the password is required, is 8 characters, was hashed with sha256; the secret is simple: it is 5 years old",
        "password is sha256-hashed, the token is <|im_end|>, the API key is in the environment, the password is wrong",
        'password = f"{first}{second}"; api_key = f"{prefix}-{number}"',
        'SECRET_PROMPT = """You are a spy.\nSay nothing."""; `password=` is passed on, or `token=`\n`a`',
        "request.headers['Authorization'] = ', '.join(parts); os.environ[\"API_KEY\"] = key; environ['API_KEY'] == 'a'",
        "password = getpass.getpass('Password: ')\nuser = 'bob'; key = input('API key: ')",
        "RSAPrivateKey = rfc3447.RSAPrivateKey\n",
        '{"primary_key": "id", "keyboard": "us", "pass@1": 0.5, "author": "x"}',
    ],
)
def test_what_is_ordinary_stays(text: str) -> None:
    assert without_credentials(text) == text


def test_few_strings_of_ordinary_code_are_touched() -> None:
    """The standard library: docstrings, constants and the text of modules."""
    folder = Path(sysconfig.get_path("stdlib"))
    texts: list[str] = []
    for path in sorted(folder.glob("*.py")) + sorted(folder.glob("[a-s]*/*.py")):
        if "site-packages" in path.parts or "test" in path.parts:
            continue
        source = path.read_text(encoding="utf-8", errors="replace")
        texts += [source[at : at + 2000] for at in range(0, len(source), 2000)]
        texts += [
            node.value
            for node in ast.walk(ast.parse(source))
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ]
    touched = [text for text in texts if without_credentials(text) != text]
    assert sum(map(len, texts)) > 5_000_000
    assert len(touched) < len(texts) / 1000


ESCAPES = [r"\n", r"\t", r"\r", r"\u0027", r"\x27", "%20", "%3D", "\x1b[31m", "\x1b[0m", r"\u001b[1;31m", r"\033[32m"]


@pytest.mark.parametrize("escape", ESCAPES)
@pytest.mark.parametrize("token", ["ghp_" + "a1B2" * 9, "sk-ant-api03-" + "a1B2" * 10, "AKIAIOSFODNN7EXAMPLE"])
def test_a_token_behind_an_escape_is_found(escape: str, token: str) -> None:
    for text in (f"{escape}{token}", f'{{"code": "a = 1{escape}{token}{escape} b"}}', f"x{escape}{token} y"):
        assert token not in without_credentials(text) and without_credentials(text).startswith(
            text[: text.index(token)]
        )


@pytest.mark.parametrize("scheme", ["GenieKey", "SSWS", "OAuth", "Splunk", "sso-key"])
def test_a_header_of_any_scheme_hides_its_credential(scheme: str) -> None:
    for text in (f"Authorization: {scheme} a1B2c3D4e5F6", f'{{"h": "authorization: {scheme} a1B2c3D4e5F6"}}'):
        assert "a1B2c3D4e5F6" not in without_credentials(text)
    for text in (f"Authorization: {scheme} ${{API_KEY_2}}", "Authorization: see docs/authentication.md"):
        assert without_credentials(text) == text
