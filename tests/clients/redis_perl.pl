# SPDX-License-Identifier: MIT
# Perl's Redis: see README.md. It reconnects only when it is told to.
use strict;
use warnings;
use Redis;

use constant PIPELINE => 1000;

sub connect_client {
    my %settings = (reconnect => 10, every => 10_000);
    $settings{password} = $ENV{PASSWORD} if $ENV{PASSWORD};
    return Redis->new(sock => $ENV{SOCKET}, %settings) if $ENV{SOCKET};
    return Redis->new(server => "127.0.0.1:$ENV{PORT}", %settings);
}

$| = 1;
print "version $Redis::VERSION\n";
my $client = connect_client();
print 'ping ', $client->ping, "\n";

my $changed = 0;
for my $user (1 .. PIPELINE) {
    $client->like($user, 42, sub { $changed += $_[0] // 0 });
}
$client->wait_all_responses;
print "pipeline $changed\n";
print 'array ', join(',', $client->liked(7, 42, 43)), "\n";

# It dies with "[command] error,  at file line n."
my $reply = eval { $client->like(7, 'nobody') };
my ($error) = ($@ =~ /^\[like\] (.*),  at /);
print defined $error ? "error $error\n" : "reply $reply\n";

print "restart\n";
<STDIN>;
print 'again ', $client->like(1001, 42), "\n";
