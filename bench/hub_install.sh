#!/bin/bash
# Measures an install over HTTP from nginx on loopback against the drive's write rate and the server's rate.
#
#   bench/hub_install.sh MODEL.gturbo DIR      needs nginx, curl, python3, and twice the model's size free in DIR
#
# A snapshot is made from the install (bench/snapshot_of.py), served, and installed again; every weight file must
# come out byte for byte. `sluice synth gemma4 --output X.gturbo` makes an install of full size. The snapshot leaves
# the page cache before each reading of it. DIGESTS=1 makes the server state the shards' SHA-256 as a hub does.
set -euo pipefail

model=$(realpath "$1") dir=$(realpath "$2")
sluice=${SLUICE:-build/sluice} port=${PORT:-8099}
work=$dir/hub-install
mkdir -p "$work/www/owner/model/resolve" "$work/nginx"
snapshot=$work/www/owner/model/resolve/main
[ -d "$snapshot" ] || python3 "$(dirname "$0")/snapshot_of.py" "$model" "$snapshot"
linked="default '';"
if [ "${DIGESTS:-0}" = 1 ]; then
    for f in "$snapshot"/*.safetensors; do
        linked+=" ~$(basename "$f")\$ $(sha256sum <"$f" | cut -d' ' -f1);"
    done
fi
cat >"$work/nginx/conf" <<END
pid $work/nginx/pid;
error_log $work/nginx/error.log;
worker_processes 1;
events {}
http {
    access_log off;
    sendfile on;
    tcp_nopush on;
    client_body_temp_path $work/nginx/a; proxy_temp_path $work/nginx/b; fastcgi_temp_path $work/nginx/c;
    uwsgi_temp_path $work/nginx/d; scgi_temp_path $work/nginx/e;
    map_hash_bucket_size 256;
    map \$uri \$linked { $linked }
    server { listen 127.0.0.1:$port; root $work/www; add_header X-Linked-ETag \$linked; }
}
END
nginx -c "$work/nginx/conf"
trap 'nginx -c "$work/nginx/conf" -s quit' EXIT
sleep 0.5
url=http://127.0.0.1:$port

seconds() { # COMMAND...: its wall time
    local from
    from=$(date +%s%N)
    "$@" >&2
    echo $((($(date +%s%N) - from) / 1000000)) | awk '{ printf "%.3f\n", $1 / 1000 }'
}
cold() { # the snapshot is read from the drive next
    for f in "$snapshot"/*.safetensors; do dd of="$f" oflag=nocache conv=notrunc count=0 status=none; done
}
rate() { awk -v bytes="$1" -v s="$2" 'BEGIN { printf "%.0f", bytes / s / 1e6 }'; } # MB/s

bytes=$(cat "$snapshot"/*.safetensors | wc -c)
cold
served=$(seconds bash -c "for f in $snapshot/*.safetensors; do curl -s -o /dev/null $url/owner/model/resolve/main/\$(basename \$f); done")
written=$(seconds dd if=/dev/zero of="$work/zeros" bs=4M count=1500 conv=fsync status=none)
rm "$work/zeros"
rm -rf "$work/out.gturbo"
cold
installed=$(HF_HOME=$work/none seconds /usr/bin/time -f '%M %U %S' -o "$work/time" "$sluice" install hub:owner/model \
    --base-url "$url" --output "$work/out.gturbo" --quiet)
read -r kib user system <"$work/time"
echo "load        $(cut -d' ' -f1-3 /proc/loadavg) on $(nproc) processors"
echo "server      $(rate "$bytes" "$served") MB/s"
echo "drive       $(rate $((1500 * 4 << 20)) "$written") MB/s, written and synced"
echo "install     $(rate "$bytes" "$installed") MB/s in $installed s; $user s user, $system s system; peak memory $((kib / 1024)) MiB"
[ "${KEEP:-0}" = 1 ] && exit
(cd "$model" && find . -name '*.bin') | while read -r file; do cmp "$model/$file" "$work/out.gturbo/$file"; done
echo "bytes       equal in every weight file"
rm -rf "$work/out.gturbo"
