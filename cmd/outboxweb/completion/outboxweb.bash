# Completions of outboxweb for bash. Source this file, or install it as
# /usr/share/bash-completion/completions/outboxweb.
_outboxweb() {
  local IFS=$'\n' found
  found=$("${COMP_WORDS[0]/#\~/$HOME}" complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | cut -f 1)
  if [[ $found == :file ]]; then
    compopt -o filenames 2>/dev/null
    found=$(compgen -f -- "${COMP_WORDS[COMP_CWORD]#=}")
  fi
  COMPREPLY=($found)
}
complete -F _outboxweb outboxweb
