# awk -v section=stdout -f match.awk NAME.case ACTUAL: compare a section of a case with what came out.
# In expected lines `*` stands for any text and a line `...` for any lines, none included. A section that is
# not there expects nothing. Prints the first difference and exits with 1.

# Whether text matches a pattern with stars. Everything else is compared byte for byte.
function matches(pattern, text,    parts, n, i, at)
{
    n = split(pattern, parts, "*")
    if (n <= 1)
        return pattern == text
    if (substr(text, 1, length(parts[1])) != parts[1])
        return 0
    text = substr(text, length(parts[1]) + 1)
    for (i = 2; i < n; i++) {
        if (parts[i] == "")
            continue
        at = index(text, parts[i])
        if (at == 0)
            return 0
        text = substr(text, at + length(parts[i]))
    }
    return length(text) >= length(parts[n]) && substr(text, length(text) - length(parts[n]) + 1) == parts[n]
}

# Expected lines from e on against actual lines from a on. Remembers how far it came.
function compare(e, a,    skip)
{
    while (e <= n_expected) {
        if (expected[e] == "...") {
            for (skip = a; skip <= n_actual + 1; skip++)
                if (compare(e + 1, skip))
                    return 1
            return 0
        }
        if (a > n_actual || !matches(expected[e], actual[a])) {
            if (a >= worst_actual) {
                worst_actual = a
                worst_expected = e
            }
            return 0
        }
        e++
        a++
    }
    if (a <= n_actual && a >= worst_actual) {
        worst_actual = a
        worst_expected = e
    }
    return a > n_actual
}

FILENAME == ARGV[1] && /^--- / {
    inside = ($2 == section)
    next
}
FILENAME == ARGV[1] {
    if (inside)
        expected[++n_expected] = $0
    next
}
{ actual[++n_actual] = $0 }

END {
    n_expected += 0
    n_actual += 0
    if (compare(1, 1))
        exit 0
    printf "    %s, line %d\n", section, worst_actual
    printf "      expected: %s\n", worst_expected <= n_expected ? expected[worst_expected] : "(nothing more)"
    printf "      got:      %s\n", worst_actual <= n_actual ? actual[worst_actual] : "(nothing more)"
    exit 1
}
