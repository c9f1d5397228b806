# Completions of outboxweb for fish. Install this file as ~/.config/fish/completions/outboxweb.fish.
function __outboxweb
    set -l words (commandline -opc)
    set -l word (commandline -ct)
    set -l program (string replace -r '^~' $HOME $words[1])
    set -l found ($program complete $words[2..-1] "$word" 2>/dev/null)
    if test "$found" = :file
        set -l option (string match -r '^--[^=]*=' -- "$word")
        __fish_complete_path (string replace -r '^--[^=]*=' '' -- "$word") | string replace -r -- '^' "$option"
    else
        printf '%s\n' $found
    end
end
complete -c outboxweb -f -a '(__outboxweb)'
