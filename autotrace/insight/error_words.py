"""Words by which the text of an error is known: patterns and hints, as data."""

from __future__ import annotations

import re


def _any(*parts: str, flags: re.RegexFlag = re.IGNORECASE) -> re.Pattern[str]:
    return re.compile("|".join(parts), flags)


_STATUS = (
    r"(?:bad request|unauthorized|payment required|forbidden|not found|method not allowed|request time-?out|"
    r"conflict|gone"
    r"|payload too large|unprocessable \w+|too many requests|internal server error|not implemented|bad gateway"
    r"|service (?:temporarily )?unavailable|gateway time-?out|server error|client error|error|access denied)"
)
_NUMBERED = rf"[45]\d\d\s*[:\u2013-]?\s*{_STATUS}"
_ENDS = (
    r"(?![^\S\n]*[:=]?[^\S\n]*[-+]?\d+(?:\.\d|\s?m?s\b))"
    r"(?=\s*(?:$|\n|[:!\[\]\u2013\u2014\uff1a\uff01,;)-]|\.(?:\s|$)|\(?[45]\d\d\b(?!\d)|\((?:code|status|http)))"
)
"""Behind a word that names an error: it is a heading, or all that is said, and no figure."""
LABEL = re.compile(
    r"(?:\s*(?:<[\w:-]{1,40}>|(?:observation|output|result|response|answer|stderr|tool \w+)\s*:))+", re.IGNORECASE
)
"""What agents write before an answer."""
_WHOSE = (
    r"(?:(?:an?|the|http|api|tool|server|client|network|internal|unknown|unexpected|unhandled|uncaught|syntax|"
    r"runtime|fatal|"
    r"critical|search|database|connection|request|response|parse|parser|parsing|import|system|execution|"
    r"application|script|sql|"
    r"socket|ssl|tls|dns|proxy|auth\w*|validation|permission|access|i/?o|os|disk|memory|read|write|gateway|"
    r"upstream|backend|"
    r"query|compil\w+|assertion|service|browser|sandbox|download|upload|fetch|catalog|binder|protocol|lookup|"
    r"kernel|mcp)\s){0,3}"
)
_ACCESS = (
    r"(?:connect|reach|resolve|contact|find|locate|open|load|fetch|access|read|retrieve|get|allocate|start|"
    r"create|establish|"
    r"complete|process|execute|run|parse|understand|verify|authenticate|perform|search|handle|write|import)\b"
)
_SYSTEM = (
    r"(?:service|server|backend|upstream|api|host|database|gateway|sandbox|model|site|endpoint|cluster|engine|"
    r"kernel|process|browser|"
    r"worker|session|container|interpreter|tab|page|target|daemon|node|vm|program|job|task|tool|client|account|"
    r"key|token|request|peer)"
)
_THING = (
    r"(?:file|directory|path|table|view|relation|column|element|page|url|resource|command|module|package|index|"
    r"collection|bucket|"
    r"object|schema|function|variable|library|key|image|model|pod|container|database|branch|repository|user|"
    r"host|sandbox|session)s?"
)
_NAMED = r"""(?:\s(?:with\s\w+\s)?["'`\u201c]?[\w./:-]+["'`\u201d]?)?:?"""

BEGINS = _any(
    rf"\W*{_WHOSE}(?:error|exception|fault|failure|timeout){_ENDS}",
    rf"\W*(?:failed|fatal|timed out|critical){_ENDS}",
    rf"\W*{_WHOSE}(?:error|exception)s? (?:has |have )?(?:been )?(?:occurred|happened|while|when|during|"
    rf"from server|calling|"
    r"executing|connecting|processing|response|code|status|message)\b(?! (?:from|given|emitted|when|of|that))",
    r"\W*(?:error|exception) (?:in|at|from|with) (?!the (?:study|message))",
    r"\W*failed (?:to \w|\w+ing\b|with\b|due\b|because\b|after\b)",
    r"\W*[\w.]*(?-i:[A-Za-z](?:Error|Exception|Timeout|Failure|Fault|Interrupt|Exhausted|"
    r"Unavailable))\b\s*(?:[:(\[]|$|\n)",
    rf"\W*(?:http(?:/\d(?:\.\d)?|s)?\W*(?:status\W*|error\W*|code\W*)*)?{_NUMBERED}(?=\W|$)",
    r"\W*(?:http|status|code|http status|status code)\W*[45]\d\d\b",
    rf"\W*(?:internal server error|service (?:temporarily )?unavailable|bad gateway|gateway time-?out|"
    rf"unauthori[sz]ed|forbidden|"
    rf"(?:access|permission)(?: is| was)? denied|not (?:authenticated|authori[sz]ed|permitted|allowed)|"
    rf"bad credentials|login required|authentication (?:failed|required)|invalid \w+(?: \w+){{0,2}}){_ENDS}",
    r"\W*too many (?:requests|connections|open files|redirects|retries|concurrent)",
    r"\W*(?:request|operation|connection|execution|query|read|socket) ?time(?:d\s?out|out)",
    rf"\W*(?:rate|request|usage|daily|monthly|token) limit\w*{_ENDS}",
    rf"\W*(?:unable to|could not|couldn't|cannot|can't|not able to) {_ACCESS}",
    r"\W*(?:错误|出错|异常|失败|超时|报错|エラー|失敗|タイムアウト|오류|실패|시간 초과)"
    r"(?=\s*(?:$|\n|\W|代码|码|信息|が|입니다))",
    r"\W*(?:fehler|zeitüberschreitung|erreur|échec|délai dépassé|erro|errore|falha|fallo|tiempo de espera|"
    r"ошибка|сбой)"
    rf"(?:{_ENDS}| (?:lors|beim|bei|ao|al|de (?:conex|conn|red|servid)|при|na|en la)\b)",
    r"\W*\"?error\"?\s*:(?!\s*-?\d+\.\d)",
)  # fmt: skip
"""How the text of an error begins."""
PHRASES = tuple(
    (hints, _any(part))
    for hints, part in (
        (("could not", "couldn't", "cannot", "can't", "unable to", "failed to"),
         r"(?:could not|couldn't|cannot|can't|unable to|failed to) (?:connect|reach|resolve|contact|"
         r"(?:be )?(?:found|reached|loaded|completed))"),
        (("timed out", "limit", "respon", "deadline", "exceeded", "protocol"),
         r"timed out|time limit exceeded|timeout \S{1,12} exceeded|protocol error \(|(?:did|does|"
         r"is) not respond|not responding|deadline exceeded"),
        (("name or", "temporary", "no route", "network", "broken"),
         r"name or service not known|temporary failure in|no route to host|network is unreachable|broken pipe"),
        (("connect",  "reset", "gone away"),
         r"connection (?:was )?(?:refused|reset|aborted|closed|terminat\w+|lost)|connect(?: call)? (?:error|"
         r"failed)|reset before|gone away|"
        r"closed (?:the )?connection|disconnected without"),
        (("code", "http", "for url", "returned"),
         rf"(?:status|error|response) code:? ?[45]\d\d|http(?:/\d\S*)? [45]\d\d\b|\b{_NUMBERED} for url|"
         rf"returned (?:a |an |status |http )*[45]\d\d\b"),
        (("exceed", "reach", "exhaust", "used up", "hit ", "out of", "insufficient", "too many", "request rate",
        "throttl"),
         r"(?:quota|limit|credits?|balance|budget|retries)s? (?:has been |have been |was |were |is |"
         r"are )?(?:exceeded|reached|exhausted|used up)"
        r"(?=\W*$|\s*[.:,;!(]|\s+(?:for|on|by|please|try|with)\b)|(?:exceeded|hit|out of|insufficient) (?:your |"
        r"the |its |my )?"
        r"(?:\w+ ){0,3}(?:quota|rate limit|credits?|balance)\b|too many requests|reduce your request rate|"
        r"throttl(?:ed|ing)|has been exhausted"),
        (("try again", "retry", "please"),
         r"(?:please|and) (?:try again|retry)|try again (?:later|in \w+ \w+|shortly|after)|retry later|"
        r"please (?:set|provide|configure|check|enter|supply|log ?in|authenticate)\b[^.\n]{0,40}\b(?:key|token|"
        r"variable|credential|password|billing|connection|network)"),
        (("unavail", "unreach", "overload", " down", "offline", "loading", "died", "crash", "killed", "expired",
        "gone away", "not found",
     "not running", "exited", "hung up", "suspended", "blocked", "revoked", "disabled", "no healthy"),
         rf"{_SYSTEM}(?: \w+){{0,3}}? (?:unavailable|unreachable|overloaded|is down|is offline|"
         rf"is (?:currently )?loading|died|crashed|was killed|"
        r"has expired|has gone away|(?:was )?not found|is not running|exited (?:with|unexpectedly)|hung up|"
        r"(?:was|has been) (?:suspended|blocked|revoked|disabled))|no healthy"),
        (("no such",),
         r"no such (?:file|table|element|container|host|index|column|database|image|process|key|bucket|module|"
         r"collection|user|page|url|option)\b"),
        (("not found", "not be found", "not loaded", "not be loaded", "not available", "not be available", "not exist",
        "n't exist"),
         rf"{_THING}{_NAMED} (?:(?:was |were |is |are |could )?not (?:be )?(?:found|loaded|available)|(?:does|"
         rf"do|did) not exist|doesn't exist)"),
        (("exit", "code", "status"),
         r"(?:exit(?:ed)?|terminated|failed|return(?:ed)?)(?: with)?(?: exit| return| non-zero)?(?: code|"
         r" status)\W{0,3}-?[1-9]"),
        (("dumped", "segment", "memory", "left", "unavail", "busy", "too many", "cannot", "certificate",
        "denied", "permitted", "quota",
     "read-only", "readonly", "locked", "terminate", "smashing"),
         r"core dumped|segmentation fault|out of memory|(?:no space|resource temporarily|"
         r"device or resource) (?:left|unavailable|busy)|"
        r"too many open files|cannot open shared object|certificate (?:verify failed|has expired)|"
        r"permission denied|access denied for|"
        r"operation not permitted|disk quota|read-?only (?:file ?system|database)|database is locked|"
        r"terminate called|smashing detected"),
        (("[errno", "err_", "ora-", "sqlstate", "error", "(1", "(2", "(3", "(4", "err!", "status", "econn",
        "etimed", "enoent", "eacces", "epipe", "enotfound",
     "ehost", "eai_", "eperm"),
         r"\[errno \d+\]|net::err_\w+|ora-\d{5}|sqlstate\W|error \d{4} \(\w+\)|\(\d{4}, ['\"]|rpc error|"
         r"mcp error|npm err!|(?-i:StatusCode\.[A-NP-Z])|"
        r"(?-i:\bE(?:CONN[A-Z]+|TIMEDOUT|NOENT|ACCES|PIPE|NOTFOUND|HOSTUNREACH|AI_AGAIN|PERM)\b)|"
        r"(?-i:status = (?:UNAVAILABLE|[A-Z]+_[A-Z]+))"),
        (("panic", "fatal", "uncaught", "goroutine", "exception", "unhandled", " at ", "traceback", "sh: ", "make: "),
         r"(?:^|\n)(?:panic|fatal|uncaught): |panicked at|(?:^|\n)goroutine \d+ \[|exception in thread|"
         r"unhandled (?:promise )?(?:exception|rejection)|"
        r"\n\s+at [\w$.<>]+ ?\(|(?:^|\n)traceback \(most recent|(?:^|\n)\w*sh: [^\n]*(?:not found|denied)|(?:^|"
        r"\n)make: \*\*\*"),
        (("traffic", "verify", "confirm", "captcha", "javascript", "n't have", "denied", "automation", "error",
        "running", "not a valid",
     "understand", "unknown", "wrong", "ran into", "encountered", "crashed"),
         r"unusual traffic|(?:verify(?:ing)?|confirm) (?:that )?you(?:'re| are) (?:a |not a )?(?:human|robot)|"
         r"complete the captcha|"
        r"enable javascript and cookies|you don't have (?:permission|access)|has been denied because|"
        r"automation tools|"
        r"error from (?:server|daemon)|error response from|is the \w+ (?:daemon|server) running|"
        r"is not a valid (?:\w+ )?(?:expression|query|url|command)|"
        r"did(?: not|n't) understand your|unknown (?:error|host|command|column|database)|something went wrong|"
        r"ran into (?:a|an) (?:problem|error)|"
        r"encountered (?:a|an) (?:\w+ )?(?:problem|error)|crashed\W*$"),
        (("<title>", "<error>"),
         r"<title>\s*(?:[45]\d\d\b|error|access denied|just a moment|attention required|forbidden|"
         r"service (?:temporarily )?unavailable|bad gateway)|<error>"),
        (('"error"',),
         r"\"error\"\s*:(?!\s*(?:null|\"\"|false|\{\s*\}|\[\s*\]|-?\d))"),
    )
)  # fmt: skip
"""What is said of failures alone, within a short text, a page or an object; one of the words before it is in
whatever it finds, and quicker to look for."""
ELSEWHERE = _any(
    r"(?:请求|连接|执行|检索|查询|调用|搜索|加载)\w{0,2}(?:失败|超时|错误|异常)|"
    r"无法(?:连接|访问|找到|打开)|(?:已欠费|余额不足)|请稍后(?:再试|重试)|"
    r"(?:服务|系统|网络|参数|数据库)\w{0,4}(?:错误|异常|繁忙|不可用)|请求过于频繁|超出(?:配额|限制)|(?:权限不足|未授权)|不存在\W*$",
    r"できません|もう一度お試し|見つかりません|失敗しました|タイムアウトしました|エラーが|연결할 수 없|"
    r"다시 시도|찾을 수 없|못했습니다|오류가|"
    r"실패했",
    r"no se (?:pudo|ha podido)|inténtelo|tiempo de espera agotado|no disponible|no responde|impossible de|"
    r"veuillez réessayer|ne répond pas|"
    r"indisponible|introuvable|konnte nicht|nicht (?:erreichbar|verfügbar|gefunden)|antwortet nicht|"
    r"fehlgeschlagen|não foi possível|"
    r"indisponível|impossibile |non disponibile|не (?:удалось|найден|отвечает)|превышен|недоступ",
)  # fmt: skip
"""The same in other languages, in a short text."""
CAUGHT = _any(
    r"\A\W*(?:'\w+' object has no attribute '|(?:list|string|tuple|index) (?:assignment )?index out of range|"
    r"(?:\w+ )?division (?:or modulo )?by zero|"
    r"name '\w+' is not defined|unsupported operand type|object of type '\w+' has no|"
    r"'\w+' object is not (?:\w+)\W*\Z|"
    r"invalid literal for|could not convert string to|maximum recursion depth|cannot (?:read|set) propert|"
    r"unexpected (?:end of|token|character|eof|keyword|indent)|expecting (?:value|property)|unterminated string|"
    r"near \"[^\"]*\": syntax error|attempt to \w+ a (?:null|nil|readonly)|undefined is not |"
    r"\w+ is not (?:defined|a function)\W*\Z)",
)  # fmt: skip
"""The texts of exceptions, without their names: what a tool has that returns what it caught."""
WHOLE = _any(
    r"\W*(?:\w+ ){1,4}?(?:failed|timed out|refused|aborted)(?=\W*$|\s*[:.!\u2014]|\s+(?:with|due to|after)\b)"
    r"(?![^\n]*\b1\d\d\d\b)",
    r"\W*(?:killed|aborted|terminated|hangup|bus error|illegal instruction|oom(?:[ -]?killed)?|out of memory|"
    r"timeout|timed out)\W*\Z",
    r"(?:the )?\w+(?: \w+){0,3} (?:is |was |are |has )?not (?:been )?(?:loaded|ready|initiali[sz]ed|configured|"
    r"authenticated|authori[sz]ed|"
    r"allowed|permitted|in the \w+list|clickable|visible|interactable|installed|running|connected|reachable|"
    r"responding|mounted|supported|set)"
    r"(?: (?:in|at|on|by) [^.\n]{1,40})?\W*\Z",
    r"(?:target|session|browser|page|socket|connection|context)(?: has been)? closed\W*\Z|blocked by [\w. ]{1,30}\Z",
)  # fmt: skip
"""All that is said, or how a short text begins."""
SPEAKS_OF = re.compile(
    r"\A\W*(?:try|catch|def|class|import|from|return|public|const|let|function|#include)\b|\n\s*(?:def |"
    r"return\b|import |raise |except\b)|"
    r"\b(?:is|are|was) an? (?!\w*\s?(?:error|problem|issue|bug|invalid|unknown))|\b(?:is|are|was) the \w+ (?:of|"
    r"in|that|which)\b|"
    r"\boccurs? (?:when|if)\b|\b(?:describes?|refers? to|defined as|stands for|means that|indicates)\b|"
    r"\A\W*(?:[0-9a-f]{7,40} \S|(?:commit|author|diff) \w|[\w./-]+\.\w{1,5}:\d+:(?!in\b|\d+: (?:fatal )?error)|"
    r"[\w./-]+\.(?:log|py|txt|cfg|md|c|js)\n|"
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d\S* \[?(?:info|debug|notice))",
    re.IGNORECASE,
)
"""An answer that defines an error or tells of one; a list of commits, files or hits; a log of what went well."""
UNKNOWN = re.compile(
    r"\W*(?:error:?\s*)?(?:unknown|no such|undefined) (?:function|tool)|\W*tool \S+ (?:not found|does not)|"
    r"\W*\S+ is not a (?:valid|known) (?:tool|function)", re.IGNORECASE,
)  # fmt: skip
ARGUMENTS = re.compile(
    r"\W*(?:error:?\s*)?(?:invalid (?:json|arguments?|parameters?)|\d+ validation errors? for|"
    r"missing (?:\d+ )?(?:required )?(?:arguments?|parameters?))", re.IGNORECASE,
)  # fmt: skip
INFRASTRUCTURE = _any(
    r"(?:container|sandbox|docker|kernel|pods?|daemon|jupyter|vm)\b[^\n]{0,60}(?:not found|died|failed to|"
    r"could not|cannot|can't|"
    r"is not running|daemon running|unavailable|expired|timeout|no such)",
    r"(?:failed to|cannot|could not|unable to) (?:start|create|connect to|reach|"
    r"allocate)[^\n]{0,30} (?:container|sandbox|docker|kernel|pod|vm)",
    r"sandboxerror|no such container|no space left on device|too many requests|rate limit|quota|50[234] (?:bad|"
    r"service|gateway)",
)  # fmt: skip
"""Of tools whose errors are the task: what is none of the program that they ran."""

FOREIGN = ("no se ", "agotado", "antwortet", "disponible", "erreichbar", "impossib", "fehlgeschlagen",
"introuvable", "tiempo de",
            "gefunden", "no responde", "indispon")  # fmt: skip
HINTS = (
    "error", "err!", "err_", "exception", "fail", "fault", "timeout", "timed", "time-out", "time limit",
    "deadline", "panic", "fatal", "refused", "reset",
    "denied", "abort", "unauthor", "forbid", "not ", "n't", "unable", "no such", "no route", "no healthy", "no space",
    "invalid", "limit", "quota", "exceed", "exhaust", "too many", "throttl", "request rate", "try again",
    "retry", "please", "unavailable",
    "unreach", "overload", " down", "offline", "loading", "crash", "died", "killed", "dumped", "terminat",
    "hangup", "oom", "memory", "closed",
    "exit", "status", "code", "http", "ora-", "sqlstate", "success", '"ok"', "expired", "gone away",
    "disconnect", "suspended",
    "blocked", "human", "robot", "captcha", "automation", "javascript", "went wrong", "ran into", "unknown",
    "undefined", "unexpected", "expecting",
    "missing", "out of range", "by zero", "unsupported", "recursion", "locked", "readonly", "read-only",
    "smashing", "***", "broken", "busy",
    "cannot", "unterminated", "goroutine", "credential", "login", "bus ", "illegal", "just a moment",
    "attention required", "insufficient",
    "out of", "revoked", "disabled", "docker", "bad gateway", "title", "returned",
    "has no", "fehler", "erreur", "erro", "falha", "fallo", *FOREIGN,
)  # fmt: skip
"""One of these is in whatever is found of plain letters; to look for them is quicker."""
