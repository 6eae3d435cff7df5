# Completion of gpucache in fish.
function _gpucache_completion
    set -l line (commandline -cp | string collect)
    set -l command (string split -m 1 -- ' -- ' $line)
    if set -q command[2]
        complete -C "$command[2]"
        return
    end
    env _GPUCACHE_COMPLETE=fish_complete COMP_LINE=$line gpucache 2>/dev/null | while read -l item
        set -l part (string split -m 2 \t -- $item)
        switch $part[1]
            case dir
                __fish_complete_directories $part[2]
            case file
                # files, also after --option=, as fish offers them for a command it does not know
                complete -C "gpucache-files $part[2]"
            case plain
                printf '%s\t%s\n' $part[2] "$part[3]"
        end
    end
end
complete --no-files --command gpucache --arguments '(_gpucache_completion)'
