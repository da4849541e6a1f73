# Check that the input is one JSON value, and print it flat: path = value, strings in their JSON spelling.
# Exits with 1 and a message on anything else, so that a case can pipe a program's output through it.

function fail(what)
{
    if (!failed)
        printf "json: %s at byte %d\n", what, pos > "/dev/stderr"
    failed = 1
    exit 1
}

function blank()
{
    while (pos <= len && index(" \t\n\r", substr(text, pos, 1)) > 0)
        pos++
}

function string(    start, c)
{
    start = pos
    if (substr(text, pos, 1) != "\"")
        fail("a string is missing")
    for (pos++; pos <= len; pos++) {
        c = substr(text, pos, 1)
        if (c == "\"") {
            pos++
            return substr(text, start + 1, pos - start - 2)
        }
        if (c == "\\")
            pos++
        else if (c < " ")
            fail("a bare control character")
    }
    fail("a string without end")
}

function value(path,    c, n, key, word)
{
    if (++depth > 64)
        fail("too deep")
    blank()
    c = substr(text, pos, 1)
    if (c == "{" || c == "[") {
        pos++
        blank()
        n = 0
        if (substr(text, pos, 1) == (c == "{" ? "}" : "]")) {
            pos++
        } else {
            for (;;) {
                key = n++
                if (c == "{") {
                    blank()
                    key = string()
                    blank()
                    if (substr(text, pos++, 1) != ":")
                        fail("a colon is missing")
                }
                value(path == "" ? key "" : path "." key)
                blank()
                word = substr(text, pos++, 1)
                if (word == (c == "{" ? "}" : "]"))
                    break
                if (word != ",")
                    fail("a comma is missing")
            }
        }
        if (c == "[")
            print path ".length = " n
    } else if (c == "\"") {
        print path " = " string()
    } else if (match(substr(text, pos, 64), /^(-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?|true|false|null)/)) {
        print path " = " substr(text, pos, RLENGTH)
        pos += RLENGTH
    } else {
        fail("a value is missing")
    }
    depth--
}

{ text = text $0 "\n" }

END {
    if (failed)
        exit 1
    len = length(text)
    pos = 1
    value("")
    blank()
    if (pos <= len)
        fail("text after the value")
}
