
# Names that are held or waited for.
function __fish_holdline_names
    holdline ls --json 2>/dev/null | string replace -rf '.*"name":"([^"\\\\]*)","permits_of".*' '$1'
end

# Whether NAME is what comes next; behind it is the command.
function __fish_holdline_run_wants_name
    set -l value no
    for word in (commandline -opc)[3..]
        if test $value = yes
            set value no
        else if contains -- $word @VALUES@
            set value yes
        else if not string match -q -- '-*' $word
            return 1
        end
    end
end

for verb in acquire renew release check who wait revoke freeze unfreeze ls
    complete -c holdline -n "__fish_holdline_using_subcommand $verb" -f -a '(__fish_holdline_names)'
end
complete -c holdline -n '__fish_holdline_using_subcommand run; and __fish_holdline_run_wants_name' -f -a '(__fish_holdline_names)'
