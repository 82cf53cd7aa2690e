# SPDX-License-Identifier: MIT
# Ruby's redis: see README.md.
require "redis"

PIPELINE = 1000

def connect
  settings = { password: ENV["PASSWORD"].empty? ? nil : ENV["PASSWORD"] }
  if ENV["SOCKET"].empty?
    Redis.new(host: "127.0.0.1", port: Integer(ENV["PORT"]), **settings)
  else
    Redis.new(path: ENV["SOCKET"], **settings)
  end
end

$stdout.sync = true
puts "version #{Redis::VERSION}"
client = connect
puts "ping #{client.ping}"
replies = client.pipelined do |pipeline|
  (1..PIPELINE).each { |user| pipeline.call("LIKE", user.to_s, "42") }
end
puts "pipeline #{replies.count(1)}"
puts "array #{client.call("LIKED", "7", "42", "43").join(",")}"
begin
  puts "reply #{client.call("LIKE", "7", "nobody")}"
rescue Redis::CommandError => e
  puts "error #{e.message}"
end
puts "restart"
$stdin.gets
puts "again #{client.call("LIKE", "1001", "42")}"
