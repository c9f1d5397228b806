#compdef outboxweb
# Completions of outboxweb for zsh. Install this file as _outboxweb in a directory of $fpath.
_outboxweb() {
  local -a found
  found=(${(f)"$(${(Q)~words[1]} complete "${(@Q)words[2,CURRENT]}" 2>/dev/null)"})
  if [[ $found == :file ]]; then
    compset -P '*='
    _files
  else
    found=("${(@)found/$'\t'/:}")
    _describe outboxweb found
  fi
}
if [[ $funcstack[1] == _outboxweb ]]; then _outboxweb "$@"; else compdef _outboxweb outboxweb; fi
