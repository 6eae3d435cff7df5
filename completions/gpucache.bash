# shellcheck shell=bash
# Completion of gpucache in bash 4.4 or newer.
_gpucache_completion() {
    local type value word
    COMPREPLY=()
    for ((word = 1; word < COMP_CWORD; word++)); do
        if [[ ${COMP_WORDS[word]} == -- ]]; then
            ((word == COMP_CWORD - 1)) && mapfile -t COMPREPLY < <(compgen -c -- "${COMP_WORDS[COMP_CWORD]}")
            compopt -o default
            return
        fi
    done
    while IFS=$'\t' read -r type value _; do
        case $type in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            plain) COMPREPLY+=("$value") ;;
        esac
    done < <(env _GPUCACHE_COMPLETE=bash_complete COMP_LINE="${COMP_LINE:0:COMP_POINT}" \
        COMP_WORDBREAKS="$COMP_WORDBREAKS" "$1" 2>/dev/null)
}
complete -o nosort -F _gpucache_completion gpucache
