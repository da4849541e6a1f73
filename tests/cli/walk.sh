# Walk the flag tables (sluice help --tables): what holds for every flag of every command. Sourced by run.sh,
# which provides ok, not_ok and $BASE. A new row is covered without a new case here, and fails until a case in
# cases/ uses it.

tab=$(printf '\t')

# Arguments that satisfy a command's operands; nothing is there, and nothing may be opened before flags are read.
operands_of() {
    case $1 in
    demo | help | models | list) ;;
    trace-diff | apply-template) echo "nothing-a nothing-b" ;;
    *) echo "nothing" ;;
    esac
}

# A value that a row takes, from its kind and description.
sample() {
    case $1 in
    u32 | u64 | slots | float | numbers | slot-list) echo 1 ;;
    size) echo 1G ;;
    choice) echo "${2%%[ ,]*}" ;;
    biases) echo 1:1 ;;
    *) echo text ;;
    esac
}

# refuses WORDS ARGUMENTS...: the program says one line with WORDS in it on standard error, nothing on standard
# output, and exits with 2.
refuses() {
    words=$1
    shift
    "$SLUICE" "$@" </dev/null >"$BASE/walk.out" 2>"$BASE/walk.err"
    code=$?
    if [ $code -ne 2 ] || [ -s "$BASE/walk.out" ] || [ "$(wc -l <"$BASE/walk.err")" -ne 1 ] ||
        ! grep -qF -- "$words" "$BASE/walk.err"; then
        echo "    sluice $*: exit $code, expected 2 and \"$words\"; stderr: $(head -1 "$BASE/walk.err")" >>"$BASE/walk.why"
    fi
}

kind_of() {
    awk -F'\t' -v c="$1" -v f="$2" '$1 == c && $2 == f { print $4 "\t" $6 }' "$BASE/tables"
}

# --name or --name=VALUE
with_sample() {
    found=$(kind_of "$1" "$2")
    if [ "${found%%"$tab"*}" = bool ]; then
        echo "--$2"
    else
        echo "--$2=$(sample "${found%%"$tab"*}" "${found#*"$tab"}")"
    fi
}

walk_flag() {
    command=$1 name=$2 letter=$3 kind=$4 times=$5 takes=$6 excludes=$7 needs=$8 shared=$9
    operands=$(operands_of "$command")
    : >"$BASE/walk.why"
    if [ "$command" != help ]; then
        "$SLUICE" help "$command" | grep -q -- "--$name\( \|\$\)" || echo "    not in the help of $command" >>"$BASE/walk.why"
    fi
    # shellcheck disable=SC2086 # operands are words
    case $kind in
    help) ;;
    bool) refuses "--$name takes no value" "$command" $operands "--$name=yes" ;;
    string | strings | paths) refuses "--$name needs a value" "$command" $operands "--$name" ;;
    *)
        refuses "--$name needs a value" "$command" $operands "--$name"
        refuses "--$name takes $takes, not \"zebra\"" "$command" $operands --$name zebra
        refuses "--$name takes" "$command" $operands --$name 99999999999999999999999999
        refuses "--$name takes" "$command" $operands --$name=
        [ "$letter" = - ] || refuses "--$name takes" "$command" $operands -$letter zebra
        ;;
    esac
    # shellcheck disable=SC2046,SC2086
    if [ "$kind" != help ]; then
        given=$(with_sample "$command" "$name")
        [ "$times" = repeats ] || refuses "--$name is given more than once" "$command" $operands "$given" "$given"
        if [ "$excludes" != - ]; then
            for other in $(echo "$excludes" | tr ',' ' '); do
                refuses "--$name and --$other cannot be given together" "$command" $operands "$given" \
                    "$(with_sample "$command" "$other")"
            done
        fi
        [ "$needs" = - ] || refuses "--$name needs" "$command" $operands "$given"
        # One row of a shared table reaches every command the same way: any command's case will do.
        users=$command
        [ "$shared" = own ] || users="[a-z-]*"
        grep -l -- "SLUICE\"* $users\( \|\$\)" $HERE/cases/*.case | xargs grep -q -- "--$name\([^a-z-]\|\$\)" ||
            echo "    no case of $command uses --$name" >>"$BASE/walk.why"
    fi
    if [ -s "$BASE/walk.why" ]; then
        not_ok "walk: $command --$name"
        cat "$BASE/walk.why"
    else
        ok "walk: $command --$name"
    fi
}

"$SLUICE" help --tables >"$BASE/tables"
if [ ! -s "$BASE/tables" ]; then
    not_ok "walk: help --tables prints nothing"
fi
while IFS=$tab read -r command name letter kind times takes excludes needs shared; do
    walk_flag "$command" "$name" "$letter" "$kind" "$times" "$takes" "$excludes" "$needs" "$shared"
done <"$BASE/tables"
